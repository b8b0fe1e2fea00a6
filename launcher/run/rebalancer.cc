#include "launcher/run/rebalancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace adaptive_train {
namespace {

std::string MedianWords(const StepTimes& steps) {
  return fmt::format("{:.3g} s (+-{:.1f} %)", steps.median_s, 100 * steps.error);
}

}  // namespace

Rebalancer::Rebalancer(const Plan& plan, std::vector<PlaceSeconds> planned, Settings settings)
    : global_batch_(plan.global_batch),
      tensor_(plan.tensor),
      rule_(ShareRuleOf(plan)),
      fixed_(settings.fixed.empty() ? FixedShares(plan) : std::move(settings.fixed)),
      replaceable_(std::move(settings.replaceable)),
      times_(plan, std::move(planned)),
      watch_(times_.Places(), plan.data),
      shares_(ReplicaSharesOf(plan)),
      changes_(shares_.size()) {
  for (const RankPlan& rank : plan.ranks)
    if (rank.tensor_rank == 0) nodes_.push_back(rank.device.node);
  if (settings.deed) judging_.emplace().deed = std::move(*settings.deed);
}

void Rebalancer::BeginLaunch() {
  Restart();
  ask_again_ = asked_.has_value();
}

void Rebalancer::Restart() {
  to_skip_ = kSkipped;
  steps_s_.clear();
  watch_.BeginWindow();
}

Rebalancer::Answer Rebalancer::AfterStep(std::span<const RankMetrics> ranks, double step_s,
                                         double moving_s) {
  std::vector<double> computed_s(times_.Places()), expected_s(times_.Places());
  Shares shares(shares_.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t place = rank / static_cast<std::size_t>(tensor_);
    computed_s[place] = std::max(computed_s[place], ranks[rank].compute_s);
    shares[static_cast<std::size_t>(times_.ReplicaOf(place))] = ranks[rank].samples;
  }
  if (asked_) {
    if (shares == asked_->to) return Begin();
    if (std::exchange(ask_again_, false)) return {.ask = asked_->to};
    return {};
  }
  shares_ = std::move(shares);
  if (to_skip_ > 0) {
    --to_skip_;
    return {};
  }
  std::vector<bool> may_be_fast(times_.Places());
  for (std::size_t place = 0; place < times_.Places(); ++place) {
    expected_s[place] =
        times_.Of(place, shares_[static_cast<std::size_t>(times_.ReplicaOf(place))]);
    may_be_fast[place] = times_.Slower(place) > 1;
  }
  steps_s_.push_back(step_s);
  moving_s_ = moving_s;
  const auto window = watch_.Add(computed_s, expected_s, step_s, may_be_fast);
  if (!window) return {};
  const StepTimes steps = StepTimesOf(std::exchange(steps_s_, {}));
  if (judging_) return Judge(steps, window->off);
  if (!window->off) return {};
  return Act(*window->off, window->steps, steps);
}

/// The ranks have the shares.
Rebalancer::Answer Rebalancer::Begin() {
  shares_ = asked_->to;
  if (!asked_->taken_back) judging_ = std::move(asked_);
  asked_.reset();
  Restart();
  return {.taken = shares_};
}

/// "rank 3 on n4", "ranks 4-5 on n3".
std::string Rebalancer::NameOf(std::size_t place) const {
  const std::size_t first = place * static_cast<std::size_t>(tensor_);
  if (tensor_ == 1) return fmt::format("rank {} on {}", first, nodes_[place]);
  return fmt::format("ranks {}-{} on {}", first, first + static_cast<std::size_t>(tensor_) - 1,
                     nodes_[place]);
}

/// Why shares do not change to these; empty if they do.
std::string Rebalancer::WhyStays(const OffPlace& off, const Shares& to) const {
  if (!fixed_.empty()) return fixed_;
  const int changes = changes_[static_cast<std::size_t>(times_.ReplicaOf(off.place))];
  if (off.times > 1 && changes >= kMostChanges)
    return fmt::format("its share has changed {} times, which is enough", changes);
  if (times_.Longest(to) * (1 + kLeastGain) > times_.Longest(shares_))
    return "no other share would be faster";
  return "";
}

Rebalancer::Answer Rebalancer::Act(const OffPlace& off, std::size_t steps,
                                   const StepTimes& before) {
  times_.Believe(off.place, off.times);
  const std::string found =
      fmt::format("{} computes {:.2f} times as long as {} ({} steps, +-{:.1f} %)",
                  NameOf(off.place), off.times > 1 ? times_.Slower(off.place) : off.times,
                  off.times > 1 ? "planned" : "before", steps, 100 * off.error);
  Answer answer = Answered(off, found, before);
  if (off.times > 1)
    answer.slow = Slow{static_cast<int>(off.place) * tensor_, nodes_[off.place], found};
  return answer;
}

Rebalancer::Answer Rebalancer::Answered(const OffPlace& off, const std::string& found,
                                        const StepTimes& before) {
  const Shares to = fixed_.empty() ? times_.Best(rule_, global_batch_) : shares_;
  if (const std::string stays = WhyStays(off, to); !stays.empty()) {
    if (off.times < 1) return {};
    return Replace(off.place, found + ": " + stays, before);
  }
  const auto replica = static_cast<std::size_t>(times_.ReplicaOf(off.place));
  if (off.times > 1) ++changes_[replica];
  const std::string what = fmt::format("the share of {} went from {} to {} sequences",
                                       NameOf(off.place), shares_[replica], to[replica]);
  asked_ = Change{{what, before}, to, shares_, off.place};
  return {.ask = to,
          .line = fmt::format("{}: its share goes from {} to {} sequences", found, shares_[replica],
                              to[replica])};
}

/// Says what the last change has brought, and takes it back if that was nothing.
Rebalancer::Answer Rebalancer::Judge(const StepTimes& after, const std::optional<OffPlace>& off) {
  const Change change = std::move(*judging_);
  judging_.reset();
  const StepTimes& before = change.deed.before;
  const std::string both =
      fmt::format("{} now, {} before", MedianWords(after), MedianWords(before));
  if (after.median_s < before.median_s)
    return {.line =
                fmt::format("steps are {:.0f} % faster since {}: {}",
                            100 * (before.median_s / after.median_s - 1), change.deed.what, both)};
  const std::string line = fmt::format("steps are no faster since {}: {}", change.deed.what, both);
  if (change.to.empty()) {
    replaceable_.clear();
    return {.in_vain = true, .line = line};
  }
  if (off && off->place == change.place && off->times > 1)
    return {.line = line + ", but it has become slower still"};
  if (Answer answer = Replace(change.place, line, after); answer.replace) return answer;
  fixed_ = "another share has not made steps faster before";
  asked_.emplace().to = change.back;
  asked_->taken_back = true;
  return {.ask = change.back, .line = line + "; the shares are taken back"};
}

/// By a spare, if there is one and steps can gain from it.
Rebalancer::Answer Rebalancer::Replace(std::size_t place, std::string line,
                                       const StepTimes& steps) {
  const std::string& node = nodes_[place];
  if (std::ranges::find(replaceable_, node) == replaceable_.end()) return {.line = std::move(line)};
  const double gain_s = steps.median_s * (1 - 1 / times_.Slower(place));
  if (gain_s < moving_s_) return {.line = line + "; too few steps are left for a move to a spare"};
  replacing_ = {"a spare took the place of " + node, steps};
  return {.replace = node, .line = fmt::format("{}; a spare takes the place of {}", line, node)};
}

}  // namespace adaptive_train
