// When a run must save and end, so that its state is on disk before the job's time is over, and
// whether a last save still fits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/config.h"
#include "launcher/steps/stop_limits.h"

namespace adaptive_train {

/// Decides by what steps and saves of this run took. No I/O.
class SaveBeforeEnd {
 public:
  /// `before` is checkpoint.before_end_seconds: none = as measured, 0 = never.
  explicit SaveBeforeEnd(AutoInt before) : before_(before) {}

  /// Only the last of `round` steps has a state to save.
  void Step(double seconds, std::int64_t round = 1);
  void Saved(double seconds);

  /// What is to be done now, `left` seconds before the job's end.
  enum class Act { kNothing, kMeasure, kEnd };
  /// kMeasure, once: nothing was saved in the first half of the time, so a save shows what one takes.
  Act At(std::optional<double> left);

  /// What a stop may take that comes `left` seconds before Slurm kills the job. A save that would
  /// take longer by the last one is not begun, and one that is under way may fit. Where none was made
  /// yet, step and save get half of the time each. A round that has not ended by itself ends so early
  /// that its last two steps still fit in, and a second at least.
  StopLimits LimitsOf(double left) const;

 private:
  double Needed() const;

  const AutoInt before_;
  std::int64_t round_ = 1;
  double step_s_ = 0, last_step_s_ = 0, least_step_s_ = 0;  // the longest, last, shortest
  std::optional<double> save_s_, last_save_s_;              // the same; nothing was saved yet
  std::optional<double> left_at_first_;
  bool measures_ = false, ends_ = false;
};

}  // namespace adaptive_train
