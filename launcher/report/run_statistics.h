// Sums up a run's steps: its row in the store and the last lines that a person reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/step_metrics.h"
#include "db/profile_store.h"

namespace adaptive_train {

/// Statistics of the steps that this launcher has seen; after a resume, without earlier steps. One
/// thread.
class RunStatistics {
 public:
  /// The lowest validation loss and its step.
  struct Best {
    std::int64_t step = 0;
    double loss = 0;  // nats per token
  };

  /// Steps that follow are the plan's, and so many of them measure the layers.
  void BeginPlan(const Plan& plan, std::int64_t warmup_steps);
  /// `spike`: the step's loss stood out from those before.
  void Add(const StepMetrics& step, bool spike);

  SummaryRecord Summary() const;
  std::int64_t Steps() const { return count_; }
  std::int64_t Skipped() const { return skipped_; }
  std::int64_t Spikes() const { return spikes_; }
  std::optional<double> FirstLoss() const { return first_loss_; }
  std::optional<double> FinalLoss() const { return summary_.final_loss; }
  std::optional<double> ValidationLoss() const { return summary_.validation_loss; }
  /// None if no validation loss so far was finite.
  const std::optional<Best>& BestValidation() const { return best_; }

 private:
  SummaryRecord summary_;
  std::optional<double> first_loss_;
  std::optional<Best> best_;
  double sum_s_ = 0, sum_squares_s_ = 0, sum_mfu_s_ = 0;
  std::int64_t warmup_left_ = 0;
  std::vector<double> plan_steps_s_;  // of the last plan, after its warm-up
  std::int64_t count_ = 0, skipped_ = 0, spikes_ = 0;
};

/// The run in words: a line on steps and speed, one on validation, each with a line end. Empty if
/// no step was done. `unigram_entropy` (nats per token) is the validation text's: the loss of a
/// model that knows only how often each token occurs.
std::string DescribeRun(const RunStatistics& statistics, double unigram_entropy,
                        int launch_retries);

}  // namespace adaptive_train
