#include "launcher/run/save_before_end.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptive_train {
namespace {

/// For ranks to end and the store to be written, and for Slurm's clock.
constexpr double kMarginSeconds = 30;
/// A file system is not always as fast as it was.
constexpr double kTimes = 2;
/// For ranks to hear that a round of local steps is to end, and for the replicas' means.
constexpr double kToEndRoundSeconds = 1;
/// For ranks and launcher to end, with the exit code by which Slurm requeues the job.
constexpr double kToEndSeconds = 2;

}  // namespace

void SaveBeforeEnd::Step(double seconds, std::int64_t round) {
  round_ = round;
  last_step_s_ = seconds;
  least_step_s_ = step_s_ == 0 ? seconds : std::min(least_step_s_, seconds);
  step_s_ = std::max(step_s_, seconds);
}

void SaveBeforeEnd::Saved(double seconds) {
  last_save_s_ = seconds;
  save_s_ = std::max(save_s_.value_or(0), seconds);
}

StopLimits SaveBeforeEnd::LimitsOf(double left) const {
  const double room = left - kToEndSeconds;
  // The end of a save beside training is told at a step's end, up to a step later.
  const double save_s = std::max(0.0, last_save_s_.value_or(room / 2) - last_step_s_);
  StopLimits limits{.give_up_s = room - save_s, .end_s = room};
  if (save_s <= room && room > 0) {
    // Ranks may hear of it just after they have agreed on a step, and end it with the next one.
    if (round_ > 1)
      limits.end_round_s = *limits.give_up_s - std::max(kToEndRoundSeconds, 2 * step_s_);
    return limits;
  }
  limits.give_up_s = room / 2;  // a save that is under way is ended by what ranks say after a step
  limits.too_long =
      room > 0
          ? fmt::format("a save takes {:.0f} s, and the job is killed in {:.0f} s", save_s, left)
          : fmt::format("the job is killed in {:.0f} s", std::max(0.0, left));
  return limits;
}

double SaveBeforeEnd::Needed() const {
  return before_ ? static_cast<double>(*before_)
                 : kMarginSeconds +
                       kTimes * (step_s_ + static_cast<double>(round_ - 1) * least_step_s_ +
                                 save_s_.value_or(0));
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
