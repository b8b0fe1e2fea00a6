#include "launcher/run/replan_decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace adaptive_train {
namespace {

/// Of a shared file system on a middling day.
constexpr double kSaveBytesPerSecond = 100e6;
/// Until the ranks of a step have started, wired themselves up and made their model.
constexpr double kLaunchSeconds = 15;

template <class Values>
double Median(const Values& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

auto PlaceAndShare(const RankPlan& rank) {
  return std::tie(rank.device.node, rank.device.kind, rank.device.index, rank.device.threads,
                  rank.stage, rank.replica, rank.tensor_rank, rank.first_sample, rank.samples,
                  rank.micro_batch);
}

auto LayersAndExchange(const StagePlan& stage) {
  return std::tie(stage.first_layer, stage.end_layer, stage.ring, stage.compressed_layers);
}

std::string Source(bool measured) { return measured ? "measured" : "estimated"; }

/// What each step of the candidate will take, and how much better it must be.
struct Expectation {
  double step_s = 0;
  double margin = kUnjudgedGain;
  std::string words;
};

Expectation Expect(const Plan& now, double measured_s, double candidate_s) {
  Expectation expected;
  if (!now.step_seconds || *now.step_seconds <= 0) {
    expected.step_s = candidate_s;
    expected.words = fmt::format(
        "{:.3g} s a step measured, no prediction for this plan; {:.3g} s "
        "predicted for the other",
        measured_s, candidate_s);
    return expected;
  }
  const double ratio = measured_s / *now.step_seconds;
  expected.step_s = candidate_s * std::max(1.0, ratio);
  expected.margin = kLeastGain + std::abs(ratio - 1) / 2;
  expected.words = fmt::format(
      "{:.3g} s a step measured, {:.3g} s predicted for this plan; {:.3g} s predicted for the "
      "other, taken as {:.3g} s",
      measured_s, *now.step_seconds, candidate_s, expected.step_s);
  return expected;
}

}  // namespace

MovingCost EstimateMovingCost(std::optional<double> last_save_s, double checkpoint_bytes,
                              std::optional<double> last_launch_s) {
  MovingCost cost;
  cost.save_s = last_save_s.value_or(checkpoint_bytes / kSaveBytesPerSecond);
  cost.launch_s = last_launch_s.value_or(kLaunchSeconds);
  cost.save_measured = last_save_s.has_value();
  cost.launch_measured = last_launch_s.has_value();
  return cost;
}

bool SameLayout(const Plan& a, const Plan& b) {
  return a.global_batch == b.global_batch && a.data == b.data && a.tensor == b.tensor &&
         a.recompute == b.recompute && a.shard == b.shard &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& x, const StagePlan& y) {
                      return LayersAndExchange(x) == LayersAndExchange(y);
                    }) &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                    [](const RankPlan& x, const RankPlan& y) {
                      return PlaceAndShare(x) == PlaceAndShare(y);
                    });
}

ReplanDecision DecideReplan(const Plan& now, double measured_step_s, const Plan& candidate,
                            std::int64_t remaining_steps, const MovingCost& cost) {
  if (SameLayout(now, candidate)) {
    return {false, fmt::format("the plan stays: with what was measured ({:.3g} s a step) the "
                               "planner finds the same again",
                               measured_step_s)};
  }
  if (!candidate.step_seconds)
    return {false, "the plan stays: the other plan's step cannot be predicted"};
  const Expectation expected = Expect(now, measured_step_s, *candidate.step_seconds);
  const double gain = measured_step_s - expected.step_s;
  const double all = gain * static_cast<double>(remaining_steps);
  const bool sure = gain > expected.margin * measured_step_s;
  const bool pays = all > cost.Seconds();
  std::string line = fmt::format(
      "{}: {}; {:+.1f} % a step, at least {:.1f} % asked for; {:+.3g} s over the {} steps left, "
      "moving costs {:.3g} s (saving and reading {:.3g} s, {}; launching {:.3g} s, {})",
      sure && pays ? "moving to another plan" : "the plan stays", expected.words,
      100 * gain / measured_step_s, 100 * expected.margin, all, remaining_steps, cost.Seconds(),
      2 * cost.save_s, Source(cost.save_measured), cost.launch_s, Source(cost.launch_measured));
  return {sure && pays, std::move(line)};
}

bool DriftWatch::Add(double step_s) {
  last_.push_back(step_s);
  if (last_.size() > kWindow) last_.pop_front();
  if (last_.size() < kWindow) return false;
  const double median = Median(last_);
  if (!reference_) {
    reference_ = median;
    return false;
  }
  slow_ = median > kSlower * *reference_ ? slow_ + 1 : 0;
  if (slow_ < kPatience) return false;
  *this = DriftWatch();
  return true;
}

ReplanWatch::ReplanWatch(const Settings& settings)
    : settings_(settings),
      times_(settings.ranks),
      measured_(settings.ranks),
      decides_(settings.after_warmup) {}

bool ReplanWatch::Measured(int rank, const LayerTimes& times) {
  const auto index = static_cast<std::size_t>(rank);
  times_[index] = times;
  measured_[index] = true;
  if (!std::all_of(measured_.begin(), measured_.end(), [](bool done) { return done; }))
    return false;
  measured_.assign(measured_.size(), false);
  judged_.clear();
  complete_ = true;
  return true;
}

ReplanAction ReplanWatch::AfterStep(double step_s) {
  if (complete_) {
    judged_.push_back(step_s);
    if (judged_.size() < kJudgedSteps) return ReplanAction::kGoOn;
    complete_ = false;
    return std::exchange(decides_, false) ? ReplanAction::kDecide : ReplanAction::kGoOn;
  }
  if (!settings_.on_drift || !drift_.Add(step_s)) return ReplanAction::kGoOn;
  decides_ = true;
  return ReplanAction::kMeasure;
}

double ReplanWatch::MeasuredStep() const { return Median(judged_); }

}  // namespace adaptive_train
