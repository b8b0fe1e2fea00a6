#include "launcher/run/save_before_end.h"

#include <algorithm>

namespace adaptive_train {
namespace {

/// For ranks to end and the store to be written, and for Slurm's clock.
constexpr double kMarginSeconds = 30;
/// A file system is not always as fast as it was.
constexpr double kTimes = 2;

}  // namespace

void SaveBeforeEnd::Step(double seconds) { step_s_ = std::max(step_s_, seconds); }

void SaveBeforeEnd::Saved(double seconds) { save_s_ = std::max(save_s_.value_or(0), seconds); }

double SaveBeforeEnd::Needed() const {
  return before_ ? static_cast<double>(*before_)
                 : kMarginSeconds + kTimes * (step_s_ + save_s_.value_or(0));
}

SaveBeforeEnd::Act SaveBeforeEnd::At(std::optional<double> left) {
  if (!left || before_ == 0 || ends_) return Act::kNothing;
  if (!left_at_first_) left_at_first_ = left;
  if (*left <= Needed()) {
    ends_ = true;
    return Act::kEnd;
  }
  const bool half = *left < *left_at_first_ / 2;
  if (before_ || save_s_ || measures_ || !half || step_s_ == 0) return Act::kNothing;
  measures_ = true;
  return Act::kMeasure;
}

}  // namespace adaptive_train
