// A steady clock that stands still while this process does not run: in a suspended job, on a
// stopped machine.
#pragma once

#include <chrono>

namespace adaptive_train {

/// For deadlines and for what work takes. A clock of the standard library's kind; any thread. Time
/// is left out while the clock is Watched only: it is then taken for stopped where nobody has looked
/// at it for kLongest.
class RunningClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunningClock, duration>;
  static constexpr bool is_steady = true;

  static constexpr std::chrono::seconds kLongest{2};

  static time_point now();
  /// All that has been left out so far.
  static duration LeftOut();

  /// While there is one, somebody calls now() several times a second.
  class Watched {
   public:
    Watched();
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
  };
};

}  // namespace adaptive_train
