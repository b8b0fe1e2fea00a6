#include "launcher/run/replan_decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace adaptive_train {
namespace {

/// The speed of a shared file system under normal load.
constexpr double kSaveBytesPerSecond = 100e6;
/// Until the ranks of a job step have started, wired up and built their model.
constexpr double kLaunchSeconds = 15;

auto PlaceAndShare(const RankPlan& rank) {
  return std::tie(rank.device.node, rank.device.kind, rank.device.index, rank.device.threads,
                  rank.stage, rank.replica, rank.tensor_rank, rank.first_sample, rank.samples,
                  rank.micro_batch);
}

auto LayersAndExchange(const StagePlan& stage) {
  return std::tie(stage.chunks, stage.ring, stage.compressed_layers);
}

std::string Source(bool measured) { return measured ? "measured" : "estimated"; }

/// "0.21 s a step (+-3.0 %)".
std::string Words(const StepTimes& steps) {
  return fmt::format("{:.3g} s a step (+-{:.1f} %)", steps.median_s, 100 * steps.error);
}

/// The expected time of the candidate's steps, and the required improvement.
struct Expectation {
  double step_s = 0;
  double margin = kUnjudgedGain;
  std::string words;
};

Expectation Expect(const Plan& now, const StepTimes& measured, double candidate_s) {
  Expectation expected;
  if (!now.step_seconds || *now.step_seconds <= 0) {
    expected.step_s = candidate_s;
    expected.words = fmt::format(
        "{} measured, no prediction for this plan; {:.3g} s "
        "predicted for the other",
        Words(measured), candidate_s);
    return expected;
  }
  const double ratio = measured.median_s / *now.step_seconds;
  expected.step_s = candidate_s * std::max(1.0, ratio);
  expected.margin = kLeastGain + std::abs(ratio - 1) / 2;
  expected.words = fmt::format(
      "{} measured, {:.3g} s predicted for this plan; {:.3g} s predicted for the "
      "other, taken as {:.3g} s",
      Words(measured), *now.step_seconds, candidate_s, expected.step_s);
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
         ScheduleNameOf(a) == ScheduleNameOf(b) &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& x, const StagePlan& y) {
                      return LayersAndExchange(x) == LayersAndExchange(y);
                    }) &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                    [](const RankPlan& x, const RankPlan& y) {
                      return PlaceAndShare(x) == PlaceAndShare(y);
                    });
}

ReplanDecision DecideReplan(const Plan& now, const StepTimes& measured, const Plan& candidate,
                            double layer_error, std::int64_t remaining_steps,
                            const MovingCost& cost) {
  if (SameLayout(now, candidate)) {
    return {false, fmt::format("the plan stays: with what was measured, {}, the "
                               "planner finds the same again",
                               Words(measured))};
  }
  if (!candidate.step_seconds)
    return {false, "the plan stays: the other plan's step cannot be predicted"};
  const Expectation expected = Expect(now, measured, *candidate.step_seconds);
  const double margin = expected.margin + kSureErrors * std::hypot(measured.error, layer_error);
  const double gain = measured.median_s - expected.step_s;
  const double all = gain * static_cast<double>(remaining_steps);
  const bool sure = gain > margin * measured.median_s;
  const bool pays = all > cost.Seconds();
  std::string line = fmt::format(
      "{}: {}; {:+.1f} % a step, at least {:.1f} % asked for; {:+.3g} s over the {} steps left, "
      "moving costs {:.3g} s (saving and reading {:.3g} s, {}; launching {:.3g} s, {})",
      sure && pays ? "moving to another plan" : "the plan stays", expected.words,
      100 * gain / measured.median_s, 100 * margin, all, remaining_steps, cost.Seconds(),
      2 * cost.save_s, Source(cost.save_measured), cost.launch_s, Source(cost.launch_measured));
  return {sure && pays, std::move(line)};
}

MoveVerdict JudgeMove(const StepTimes& before, const StepTimes& after, std::int64_t remaining_steps,
                      const MovingCost& cost) {
  const std::string both = fmt::format("{} after it, {} before", Words(after), Words(before));
  if (after.median_s < before.median_s) return {false, "the move made steps faster: " + both};
  const double gain = (after.median_s - before.median_s) * static_cast<double>(remaining_steps);
  if (gain <= cost.Seconds())
    return {false, fmt::format("the move made steps no faster: {}; going back would gain {:.3g} s "
                               "over the {} steps left and cost {:.3g} s: this plan stays",
                               both, gain, remaining_steps, cost.Seconds())};
  return {true, fmt::format("going back to the plan before: the move made steps no faster: {}; "
                            "{:+.3g} s over the {} steps left, moving costs {:.3g} s",
                            both, gain, remaining_steps, cost.Seconds())};
}

}  // namespace adaptive_train
