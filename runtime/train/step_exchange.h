// What becomes of a rank's gradients in a step: exchanged while backward runs, judged, and made an
// update of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/plan.h"
#include "core/step_metrics.h"
#include "runtime/comm/groups.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/compression_control.h"
#include "runtime/train/loss_scaler.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/step_measure.h"
#include "runtime/train/tied_embedding.h"

namespace adaptive_train {

/// Reducer, optimizer and compression of one rank. Begin a step; for each micro-batch of each chunk
/// pass OnGradients and OnHeadGradients to backward, `last` with the chunk's last one, and
/// EndMicroBatch after the first chunk's; then Finish, Update and EndStep. Throws FatalError. Not
/// thread-safe.
template <class T>
class StepExchange {
 public:
  /// What is passed by reference must outlive this.
  StepExchange(const Config& config, const Plan& plan, const RankPlan& own, Groups& groups,
               RankState<T>& state, LayerProfiler& profiler, StepMeasure& measure);

  const Optimizer<T>& optimizer() const { return optimizer_; }
  /// Gradients that compression holds back; empty where none is.
  std::span<float> Residuals() { return reducer_.Residuals(); }
  /// Where a checkpoint's residuals are read to on a rank that keeps none: with a single replica
  /// the next update takes them all. Empty where gradients are not to be compressed.
  std::span<float> ResidualsToTake() {
    return compression_.Asked() ? reducer_.ResidualsToTake() : std::span<float>();
  }
  /// Whether the next update is to take such residuals.
  bool TakesResiduals() { return !compression_.MayCompress() && !Residuals().empty(); }
  /// In the step under way something is held back, or was: residuals change before its update.
  bool ChangesResiduals() const { return changes_residuals_; }
  double LossScale() const;
  const ExchangeFigures& Figures() const { return reducer_.Figures(); }
  /// This step's gradients are looked at on the host, and exchanged after backward.
  bool Measured() const { return profiler_.Active() || compression_.WantsGradients(); }

  /// Of the whole step, before anything else of it.
  void Begin(std::int64_t step);
  OnReady OnGradients(bool last);
  typename TransformerStage<T>::OnHeadReady OnHeadGradients(bool last);
  void EndMicroBatch(bool last);
  /// After this rank's last micro-batch: takes part in what others still exchange, waits for all
  /// sums.
  void Finish();
  /// Norm, clipping, update and learning rate of the step; fills these into `metrics`.
  void Update(RankMetrics& metrics);
  /// After the step.
  std::optional<CompressionDecision> EndStep(bool skipped, bool measured);

  /// Before weights up to element `end` are read: waits for those that others own.
  void WaitForWeights(std::size_t end);
  void WaitForAllWeights() {
    WaitForWeights(state_.Size());
    tied_.WaitForWeights();
  }

  std::int64_t Updates() const { return updates_; }
  /// What a checkpoint keeps of this, by name; finite numbers. All ranks call it together.
  std::map<std::string, double> Kept(const SumOfNumbers& sum) const;
  /// Whether this rank tells what its stage decides.
  bool SpeaksForStage() const { return groups_.data.Rank() == 0 && groups_.tensor.Rank() == 0; }
  /// After arenas and residuals were read. Gives a line for people where a decision of the
  /// checkpoint has no place in this layout.
  std::optional<std::string> Restore(std::int64_t updates,
                                     const std::map<std::string, double>& kept);
  /// Makes the weights from the owners' parameters. Before the first step.
  void MakeWeights();

 private:
  // Of [begin, end) what is trained here.
  void AddGradients(std::size_t begin, std::size_t end);
  void TakeGradients(std::size_t begin, std::size_t end);
  void SendWeights();
  void FinishMicroBatch();
  double SquaredNorm();
  void UpdateState(RankMetrics& metrics);

  const OptimizerConfig& config_;
  const Plan& plan_;
  const int rank_;
  Groups& groups_;
  Group& group_;  // data
  Group& tensor_;
  Group& pipeline_;
  RankState<T>& state_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  CompressionControl compression_;
  std::map<std::string, double> kept_ways_;  // of all stages' sums
  const bool each_;               // micro-batch's gradients are exchanged, as they are sharded
  const std::int64_t exchanges_;  // of gradients in a step
  GradientReducer<T> reducer_;
  Optimizer<T> optimizer_;
  TiedEmbedding<T> tied_;
  const LrSchedule schedule_;
  LossScaler scaler_;           // of float16
  std::int64_t step_ = 0;       // that is under way
  std::int64_t exchanged_ = 0;  // micro-batches of it
  std::int64_t updates_ = 0;    // steps without the skipped ones
  bool changes_residuals_ = false;
  struct {
    std::size_t begin = 0, end = 0;
  } early_;  // of this micro-batch's gradients, what went before its turn
};

}  // namespace adaptive_train
