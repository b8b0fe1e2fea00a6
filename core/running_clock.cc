#include "core/running_clock.h"

#include <mutex>

namespace adaptive_train {
namespace {

using Steady = std::chrono::steady_clock;

/// A process is stopped as a whole, so there is one of this.
struct Looks {
  std::mutex mutex;
  int watched = 0;  // guarded by mutex, as all below
  Steady::time_point last;
  Steady::duration left_out{0};
};

Looks& TheLooks() {
  static Looks looks;
  return looks;
}

/// The caller holds the mutex.
Steady::time_point Look(Looks& looks) {
  const auto now = Steady::now();
  if (looks.watched > 0 && now - looks.last > RunningClock::kLongest)
    looks.left_out += now - looks.last;
  looks.last = now;
  return now;
}

}  // namespace

RunningClock::time_point RunningClock::now() {
  Looks& looks = TheLooks();
  const std::lock_guard lock(looks.mutex);
  const auto now = Look(looks);
  return time_point(now.time_since_epoch() - looks.left_out);
}

RunningClock::duration RunningClock::LeftOut() {
  Looks& looks = TheLooks();
  const std::lock_guard lock(looks.mutex);
  Look(looks);
  return looks.left_out;
}

RunningClock::Watched::Watched() {
  Looks& looks = TheLooks();
  const std::lock_guard lock(looks.mutex);
  Look(looks);
  ++looks.watched;
}

RunningClock::Watched::~Watched() {
  Looks& looks = TheLooks();
  const std::lock_guard lock(looks.mutex);
  --looks.watched;
}

}  // namespace adaptive_train
