// Whether something goes on, by a number that changes as long as it does.
#pragma once

#include <chrono>

#include "core/running_clock.h"

namespace adaptive_train {

/// For waits whose length depends on how much there is to do: they end when nothing moves, not when
/// a time is over. One thread.
class StallWatch {
 public:
  /// Something stalls when it has not moved for `limit`; the watch begins now.
  explicit StallWatch(std::chrono::seconds limit) : limit_(limit) {}

  /// Takes how far it is by now. True: that has been the same for the limit.
  bool Stalled(double progress) {
    const auto now = RunningClock::now();
    if (progress != progress_) since_ = now;
    progress_ = progress;
    return now - since_ >= limit_;
  }

 private:
  const std::chrono::seconds limit_;
  double progress_ = -1;
  RunningClock::time_point since_ = RunningClock::now();
};

}  // namespace adaptive_train
