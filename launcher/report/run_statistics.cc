#include "launcher/report/run_statistics.h"

#include <fmt/format.h>

#include "launcher/report/step_table.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

std::string Counted(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// None of no values.
std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void RunStatistics::BeginPlan(const Plan& plan, std::int64_t warmup_steps) {
  std::int64_t most = 0;
  for (const RankPlan& rank : plan.ranks)
    most = std::max(most, (rank.samples + rank.micro_batch - 1) / rank.micro_batch);
  summary_.micro_batches = most;
  summary_.predicted_step_s = plan.step_seconds;
  warmup_left_ = warmup_steps;
  plan_steps_s_.clear();
}

void RunStatistics::Add(const StepMetrics& step, bool spike) {
  if (!first_loss_) first_loss_ = step.loss;
  summary_.steps = step.step;
  summary_.tokens += step.tokens;
  summary_.final_loss = step.loss;
  summary_.grad_bytes += step.grad_bytes;
  summary_.param_bytes += step.param_bytes;
  summary_.activation_bytes += step.activation_bytes;
  summary_.peak_memory_bytes = std::max(summary_.peak_memory_bytes, step.peak_memory_bytes);
  if (step.validation_loss) {
    summary_.validation_loss = step.validation_loss;
    if (std::isfinite(*step.validation_loss) && (!best_ || *step.validation_loss < best_->loss))
      best_ = Best{step.step, *step.validation_loss};
  }
  sum_mfu_s_ += step.mfu * step.step_s;
  sum_s_ += step.step_s;
  sum_squares_s_ += step.step_s * step.step_s;
  if (warmup_left_-- <= 0) plan_steps_s_.push_back(step.step_s);
  ++count_;
  skipped_ += step.skipped ? 1 : 0;
  spikes_ += spike ? 1 : 0;
}

SummaryRecord RunStatistics::Summary() const {
  SummaryRecord summary = summary_;
  if (count_ == 0 || sum_s_ <= 0) return summary;
  const double mean = sum_s_ / static_cast<double>(count_);
  const double variance = std::max(0.0, sum_squares_s_ / static_cast<double>(count_) - mean * mean);
  summary.mean_step_s = mean;
  summary.plan_step_s = Median(plan_steps_s_);
  summary.tokens_per_s = static_cast<double>(summary.tokens) / sum_s_;
  summary.robustness = 1 - std::sqrt(variance) / mean;
  if (sum_mfu_s_ > 0) summary.mfu = sum_mfu_s_ / sum_s_;
  return summary;
}

std::string DescribeRun(const RunStatistics& statistics, double unigram_entropy,
                        int launch_retries) {
  std::string text;
  const SummaryRecord summary = statistics.Summary();
  if (statistics.FirstLoss() && statistics.FinalLoss()) {
    text += fmt::format("{}: loss {:.4f} -> {:.4f}, {} skipped, {}, {:.0f} tokens/s",
                        Counted(statistics.Steps(), "step", "steps"), *statistics.FirstLoss(),
                        *statistics.FinalLoss(), statistics.Skipped(),
                        Counted(statistics.Spikes(), "loss spike", "loss spikes"),
                        summary.tokens_per_s.value_or(0));
    if (summary.mfu) text += fmt::format(", MFU {:.1f}%", 100 * *summary.mfu);
    text += fmt::format(", robustness {:.3f}, {}\n", summary.robustness.value_or(0),
                        Counted(launch_retries, "launch retry", "launch retries"));
  }
  if (summary.predicted_step_s && summary.plan_step_s) {
    text += fmt::format("{}: a step of {:.3g} s was predicted, {:.3g} s was measured ({:+.1f} %)\n",
                        Counted(summary.micro_batches.value_or(0), "micro-batch", "micro-batches"),
                        *summary.predicted_step_s, *summary.plan_step_s,
                        100 * (*summary.plan_step_s / *summary.predicted_step_s - 1));
  }
  if (const auto loss = statistics.ValidationLoss()) {
    text += fmt::format(
        "validation loss {:.4f} nats per token (unigram entropy of the validation text: {:.4f}), "
        "perplexity {}",
        *loss, unigram_entropy, ShownPerplexity(*loss));
    if (const auto& best = statistics.BestValidation()) {
      text += fmt::format("; best {:.4f}, perplexity {}, at step {}", best->loss,
                          ShownPerplexity(best->loss), best->step);
    }
    text += '\n';
  }
  return text;
}

}  // namespace adaptive_train
