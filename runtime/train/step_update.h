// What a step makes of the summed gradients: norm, clipping, the update, and the weights of the
// next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/plan.h"
#include "core/step_metrics.h"
#include "runtime/comm/groups.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/train/loss_scaler.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/step_measure.h"
#include "runtime/train/tied_embedding.h"

namespace adaptive_train {

/// Optimizer, loss scale and learning rate of one rank. Throws FatalError. Not thread-safe.
template <class T>
class StepUpdate {
 public:
  /// `reducer` is that of the step's exchange. What is passed by reference must outlive this.
  StepUpdate(const Config& config, const Plan& plan, const RankPlan& own, Groups& groups,
             RankState<T>& state, GradientReducer<T>& reducer, TiedEmbedding<T>& tied,
             LayerProfiler& profiler, StepMeasure& measure);

  const Optimizer<T>& optimizer() const { return optimizer_; }
  /// Of the step to come.
  double LossScale() const;
  /// Updates made; skipped steps make none.
  std::int64_t Updates() const { return updates_; }

  /// After StepExchange::Finish: this rank's part of the squared norm of the whole model's gradient,
  /// as numbers to be summed over all ranks. Exact where no layout may change a bit.
  /// Of a local step, each replica's for itself.
  std::vector<double> Squares(bool local);
  /// `squares` are those sums: all ranks clip alike, or in a local step each by its own norm, and
  /// the norm that is told is the root mean square. Fills norm, loss scale and learning rate into
  /// `metrics`. Makes the update, or skips it where the norm is not finite. The older weights, where
  /// there are such, are then those before, also where the update is skipped.
  void Make(std::span<const double> squares, RankMetrics& metrics);

  /// Before weights up to element `end` are read: waits for those that others own.
  void WaitForWeights(std::size_t end);
  void WaitForAllWeights() {
    WaitForWeights(state_.Size());
    tied_.WaitForWeights();
  }
  /// Makes the weights from the owners' parameters. Before the first step.
  void MakeWeights();

  /// What a checkpoint keeps of this, by name; finite numbers.
  std::map<std::string, double> Kept() const;
  /// After StepExchange::Restore.
  void Restore(std::int64_t updates, const std::map<std::string, double>& kept);

 private:
  void SendWeights();
  void KeepWeights();
  void Judge(std::span<const double> squares, RankMetrics& metrics);
  void JudgeLocal(std::span<const double> squares, RankMetrics& metrics);
  void MakeUpdate(const RankMetrics& metrics);

  const OptimizerConfig& config_;
  const Plan& plan_;
  const RankPlan& own_;
  Groups& groups_;
  RankState<T>& state_;
  GradientReducer<T>& reducer_;
  TiedEmbedding<T>& tied_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  const bool exact_;  // norm
  Optimizer<T> optimizer_;
  const LrSchedule schedule_;
  LossScaler scaler_;  // of float16
  std::int64_t updates_ = 0;
  // Of the step under way.
  bool local_ = false;
  double clipped_norm_ = 0, gradient_scale_ = 1;
};

}  // namespace adaptive_train
