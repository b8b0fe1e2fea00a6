// Things that happen at simulated times, one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace adaptive_train {

/// A clock and what is to come. One thread; nothing waits in real time. Events of the same time
/// happen in the order in which they were asked for, so a run is the same each time.
class EventLoop {
 public:
  using Action = std::function<void()>;

  /// Seconds since the start.
  double Now() const { return now_; }
  /// `action` happens at `time`, now at the earliest. A time that is not finite never comes.
  void At(double time, Action action);
  void After(double seconds, Action action) { At(now_ + seconds, std::move(action)); }
  /// `settle` is called whenever all events of a time are over, before the clock goes on.
  void WhenSettling(Action settle) { settle_ = std::move(settle); }
  /// Plays until nothing is left to happen.
  void Run();

 private:
  struct Event {
    double time;
    std::uint64_t order;
    Action action;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  double now_ = 0;
  std::uint64_t asked_ = 0;
  std::vector<Event> events_;  // a heap, the next one in front
  Action settle_;
};

}  // namespace adaptive_train
