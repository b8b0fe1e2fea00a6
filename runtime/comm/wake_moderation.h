// Lets data that trickles in gather before the communication thread looks at it again.
#pragma once

#include <chrono>
#include <cstddef>

namespace adaptive_train {

/// Interrupt moderation, as network cards have it, for a thread that waits for transfers. On a slow
/// link a message comes packet by packet, and to wake for each costs more than to copy it. So a
/// thread that woke and could end no transfer leaves the next data alone for as long as the link
/// takes for kGathered bytes. What a transfer needs beyond its first wake tells how fast that is.
/// A message that ends with the first wake is never held up, nor one on a fast link. One thread.
class WakeModeration {
 public:
  using Clock = std::chrono::steady_clock;

  /// Such pauses are too short to be worth it, or long enough.
  static constexpr std::chrono::microseconds kLeast{150}, kMost{1000};
  static constexpr double kGathered = 32 << 10;  // bytes

  /// A transfer of so many bytes has ended, in the round that Round will tell of.
  void Ended(std::size_t bytes) {
    ended_ += static_cast<double>(bytes);
    ++transfers_;
  }

  /// The thread has taken all that was there, after it woke, or after a pause. Returns for how long
  /// it is to leave alone what comes next; 0: until it is woken.
  std::chrono::microseconds Round(Clock::time_point now);

 private:
  double ended_ = 0;                // bytes, since the last round
  int transfers_ = 0;               // since the last round
  bool waits_ = false;              // a round has ended no transfer since the last one that did
  Clock::time_point began_{};       // the first such round
  double bytes_ = 0, seconds_ = 0;  // of transfers that took several rounds; older ones count less
};

}  // namespace adaptive_train
