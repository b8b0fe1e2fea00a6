#include "runtime/buddy/copy_interval.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

/// Between two decisions, once there have been some.
constexpr std::int64_t kMostCopiesBetween = 64;
/// A shorter distance is taken only if it is shorter by so much, so that noise changes nothing.
constexpr double kWorthChanging = 0.75;

}  // namespace

bool CopyInterval::AfterStep(double seconds) {
  ++counted_steps_;
  steps_s_ += seconds;
  return ++since_copy_ >= every();
}

/// The first copy is not counted: it touches all memory for the first time.
bool CopyInterval::AfterCopy(double seconds) {
  since_copy_ = 0;
  if (copies_++ == 0) {
    counted_steps_ = 0;
    steps_s_ = 0;
    return false;
  }
  ++counted_copies_;
  copies_s_ += seconds;
  return copies_ == next_decision_;
}

CopyCosts CopyInterval::Costs() const {
  return {counted_copies_ > 0 ? copies_s_ / static_cast<double>(counted_copies_) : 0,
          counted_steps_ > 0 ? steps_s_ / static_cast<double>(counted_steps_) : 0};
}

bool CopyInterval::Decide(const CopyCosts& largest) {
  next_decision_ += std::min(copies_, kMostCopiesBetween);
  counted_copies_ = counted_steps_ = 0;
  copies_s_ = steps_s_ = 0;
  const double steps =
      std::ceil(largest.copy_s / (kMostCopyShare * std::max(largest.step_s, 1e-9)));
  const auto every = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(steps, 1e9)));
  const bool changes =
      !decided_ ||
      (fixed_ == 0 && (every > every_ ||
                       static_cast<double>(every) <= kWorthChanging * static_cast<double>(every_)));
  if (changes) every_ = every;
  decided_ = true;
  return changes;
}

}  // namespace adaptive_train
