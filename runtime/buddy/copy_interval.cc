#include "runtime/buddy/copy_interval.h"

#include <algorithm>
#include <cmath>

#include "core/keeping_rule.h"

namespace adaptive_train {
namespace {

/// Between two decisions, once there have been some.
constexpr std::int64_t kMostCopiesBetween = 64;
/// A first copy that takes longer, in seconds, is not repeated in the next steps to be measured.
constexpr double kDearCopy = 1;
/// A distance that is chosen has room, so that noise does not change it again and again; half of it
/// is worth a change.
constexpr double kRoom = 1.5;

/// The smallest whole distance of at least `steps`, with room where it is more than one step.
std::int64_t WithRoom(double steps) {
  constexpr double kMost = 1e9;
  return steps <= 1 ? 1 : static_cast<std::int64_t>(std::ceil(std::min(kRoom * steps, kMost)));
}

}  // namespace

bool CopyInterval::AfterStep(double seconds) {
  ++counted_steps_;
  steps_s_ += seconds;
  // Without a copy of its own a launch stands on what the one before kept, which lacks a node already
  // if that failed with one: the first step is kept.
  return ++since_copy_ >= (copies_ == 0 ? 1 : every());
}

bool CopyInterval::AfterCopy(double seconds) {
  since_copy_ = 0;
  ++counted_copies_;
  copies_s_ += seconds;
  if (++copies_ > 1 && copies_ <= kKeptSlots) CountAnew();  // its slot was made for it
  return (copies_ == 1 && fixed_ == 0) || copies_ == next_decision_;
}

void CopyInterval::CountAnew() {
  counted_copies_ = counted_steps_ = 0;
  copies_s_ = steps_s_ = 0;
}

CopyCosts CopyInterval::Costs() const {
  return {counted_copies_ > 0 ? copies_s_ / static_cast<double>(counted_copies_) : 0,
          counted_steps_ > 0 ? steps_s_ / static_cast<double>(counted_steps_) : 0};
}

bool CopyInterval::Decide(const CopyCosts& largest) {
  CountAnew();
  if (copies_ == 1) {
    if (largest.copy_s < kDearCopy) return false;
    next_decision_ = kKeptSlots + 1;  // what it took to make slots counts no longer
  } else {
    next_decision_ += std::min(copies_, kMostCopiesBetween);
  }
  const double steps = largest.copy_s / (kMostCopyShare * std::max(largest.step_s, 1e-9));
  const std::int64_t every = WithRoom(steps);
  const bool changes =
      !decided_ || (fixed_ == 0 && (steps > static_cast<double>(every_) || 2 * every <= every_));
  if (changes) every_ = every;
  decided_ = true;
  return changes;
}

}  // namespace adaptive_train
