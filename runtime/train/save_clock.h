// When a run is to be saved by the clock.
#pragma once

#include <algorithm>
#include <chrono>

namespace adaptive_train {

/// Asks for a save when none was begun for checkpoint.every_minutes, so that no more than that is
/// ever lost. One thread.
class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// 0 minutes: never asks.
  SaveClock(double minutes, Clock::time_point now)
      : period_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double, std::ratio<60>>(minutes))),
        begun_(now) {}

  /// Once a period.
  bool Due(Clock::time_point now) {
    if (period_ == Clock::duration::zero() || now - begun_ < period_) return false;
    begun_ = now;
    return true;
  }
  /// A save, whoever asked for it, holds the state of this time.
  void Saved(Clock::time_point state) { begun_ = std::max(begun_, state); }

 private:
  Clock::duration period_;
  Clock::time_point begun_;  // the newest save
};

}  // namespace adaptive_train
