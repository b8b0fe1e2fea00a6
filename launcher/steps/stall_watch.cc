#include "launcher/steps/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "launcher/steps/stall_cause.h"

namespace adaptive_train {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::size_t kSteps = 31;  // that the median is taken of

}  // namespace

void StallWatch::Begin(Time now, std::int64_t round) {
  *this = StallWatch();
  round_ = round;
  since_ = now;
}

std::optional<std::string> StallWatch::Step(std::int64_t step, double seconds, Time now) {
  const Seconds took = now - since_;
  const bool told = told_.has_value();
  since_ = now;
  step_ = step;
  asked_.reset();
  told_.reset();
  usual_.push_back(seconds);
  if (usual_.size() > std::max(kSteps, static_cast<std::size_t>(round_))) usual_.pop_front();
  if (!told) return std::nullopt;
  return fmt::format("step {} has ended after {:.0f} s: the run goes on", step, took.count());
}

double StallWatch::Median() const {
  std::vector<double> sorted(usual_.begin(), usual_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

Seconds StallWatch::Limit() const {
  if (usual_.empty()) return kFirstStepLimit;
  const auto limit = std::max<Seconds>(kLeastLimit, Seconds(kUsualSteps * Median()));
  if (round_ == 1) return limit;
  if (std::ssize(usual_) < round_) return std::max<Seconds>(kFirstStepLimit, limit);
  return std::max(limit, Seconds(kRoundEnds * *std::ranges::max_element(usual_)));
}

bool StallWatch::Asks(Time now) {
  const Seconds next = told_ ? 2 * *told_ : Limit();
  if (asked_ || now - since_ < next) return false;
  asked_ = now;
  return true;
}

std::optional<std::string> StallWatch::Line(std::span<const RankRecord> ranks, Time now) {
  if (!asked_ || now - *asked_ < kAnswerTime) return std::nullopt;
  asked_.reset();
  told_ = now - since_;
  const std::string usually = usual_.empty() ? "" : fmt::format(", usually {:.2g} s", Median());
  return fmt::format("no step for {:.0f} s (step {}{}): {}", told_->count(), step_ + 1, usually,
                     Describe(FindStallCause(ranks), ranks));
}

}  // namespace adaptive_train
