#include "runtime/comm/wake_moderation.h"

#include <algorithm>

namespace adaptive_train {

std::chrono::microseconds WakeModeration::Round(Clock::time_point now) {
  constexpr double kOlder = 0.75;
  if (transfers_ > 0) {
    if (waits_) {
      bytes_ = kOlder * bytes_ + ended_;
      seconds_ = kOlder * seconds_ + std::chrono::duration<double>(now - began_).count();
    }
    ended_ = transfers_ = 0;
    waits_ = false;
    return {};
  }
  if (!waits_) began_ = now;
  waits_ = true;
  if (bytes_ == 0) return {};
  const std::chrono::duration<double> gathers(kGathered * seconds_ / bytes_);
  const auto pause =
      std::min(std::chrono::duration_cast<std::chrono::microseconds>(gathers), kMost);
  return pause < kLeast ? std::chrono::microseconds{0} : pause;
}

}  // namespace adaptive_train
