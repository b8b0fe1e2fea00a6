// The exchange of a rank's gradients in a step, while backward runs: passed on as they become final,
// looked at where something is measured, and waited for.
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
#include "runtime/comm/groups.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/compression_control.h"
#include "runtime/train/local_steps.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/step_measure.h"
#include "runtime/train/tied_embedding.h"
#include "runtime/train/unit_gradients.h"

namespace adaptive_train {

/// Reducer and compression of one rank. Begin a step; for each micro-batch of each chunk pass
/// OnGradients and OnHeadGradients to backward, `last` with the chunk's last one, and EndMicroBatch
/// after the first chunk's; then Finish, StepUpdate::Make and EndStep. With units, also AfterLoss and
/// OnInputGradients; exchanged are then the sums of the rank's units, once a step. With two versions
/// of the weights backward exchanges nothing: a step begins after its backwards, HandOver follows, and
/// the exchange goes on beside the next one's. In a local step nothing is exchanged. Throws
/// FatalError. Not thread-safe.
template <class T>
class StepExchange {
 public:
  /// What is passed by reference or pointer must outlive this.
  StepExchange(const Config& config, const Plan& plan, const RankPlan& own, Groups& groups,
               RankState<T>& state, TiedEmbedding<T>& tied, LayerProfiler& profiler,
               StepMeasure& measure, UnitGradients<T>* units = nullptr);

  GradientReducer<T>& Reducer() { return reducer_; }
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
  const ExchangeFigures& Figures() const { return reducer_.Figures(); }
  /// This step's gradients are looked at, and exchanged after backward.
  bool Measured() const { return profiler_.Active() || compression_.WantsGradients(); }

  /// Of the whole step, before anything else of it. Gradients will be `loss_scale` times those of
  /// the loss.
  void Begin(std::int64_t step, double loss_scale);
  /// With two versions of the weights, after Begin: exchanges all gradients that backward had made
  /// before it.
  void HandOver();
  /// The loss of a micro-batch has been made, with its gradients.
  void AfterLoss(int micro_batch);
  /// For the first half of a backward in halves.
  OnReady OnInputGradients(int micro_batch);
  OnReady OnGradients(int micro_batch, bool last);
  typename TransformerStage<T>::OnHeadReady OnHeadGradients(bool last);
  void EndMicroBatch(bool last);
  /// After this rank's last micro-batch: takes part in what others still exchange, waits for all
  /// sums.
  void Finish();
  /// Of the step under way.
  bool Local() const { return local_.Has(step_); }
  /// After the update of a local step: whether its round is over.
  bool EndsRound() const { return local_.EndsRound(step_); }
  /// Parameters and moments become their means over the replicas; gradients are lost. All replicas
  /// call it together.
  void AverageReplicas();
  /// Between steps, after the plan has got other shares.
  void TakeShares();

  /// After the step.
  std::optional<CompressionDecision> EndStep(bool skipped, bool measured);

  /// What a checkpoint keeps of this, by name; finite numbers. All ranks call it together.
  std::map<std::string, double> Kept(const SumOfNumbers& sum) const;
  /// Whether this rank tells what its stage decides.
  bool SpeaksForStage() const { return groups_.data.Rank() == 0 && groups_.tensor.Rank() == 0; }
  /// After arenas and residuals were read. Gives a line for people where a decision of the
  /// checkpoint has no place in this layout.
  std::optional<std::string> Restore(const std::map<std::string, double>& kept);

 private:
  // Of [begin, end) what is trained here.
  void AddGradients(std::size_t begin, std::size_t end);
  void AddByBuckets(std::size_t begin, std::size_t end, const OnReady& add);
  void Limit(std::size_t elements);
  void TakeGradients(std::size_t begin, std::size_t end);
  void FinishMicroBatch();
  void Average(std::span<float> numbers);

  const Plan& plan_;
  const RankPlan& own_;
  const LocalSteps local_;
  Groups& groups_;
  Group& group_;  // data
  RankState<T>& state_;
  TiedEmbedding<T>& tied_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  UnitGradients<T>* const units_;  // nullptr: gradients are one sum over the micro-batches
  CompressionControl compression_;
  std::map<std::string, double> kept_ways_;  // of all stages' sums
  const bool hands_over_;                    // whole steps' gradients
  const bool each_;         // micro-batch's gradients are exchanged, as they are sharded
  std::int64_t exchanges_;  // of gradients in a step
  GradientReducer<T> reducer_;
  std::int64_t step_ = 0;       // that is under way
  double loss_scale_ = 1;       // of it
  std::int64_t exchanged_ = 0;  // micro-batches of it
  bool changes_residuals_ = false;
  struct {
    std::size_t begin = 0, end = 0;
  } early_;  // of this micro-batch's gradients, what went before its turn
};

}  // namespace adaptive_train
