// A loop of events at simulated times.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace adaptive_train {

/// A clock and the events to come. One thread; nothing waits in real time. Events of the same time
/// run in the order in which they were added, so every run is the same.
class EventLoop {
 public:
  using Action = std::function<void()>;

  /// Seconds since the start.
  double Now() const { return now_; }
  /// Runs `action` at `time`, or now if that is past. A time that is not finite never comes.
  void At(double time, Action action);
  void After(double seconds, Action action) { At(now_ + seconds, std::move(action)); }
  /// Calls `settle` after all events of a time, before the clock moves on.
  void WhenSettling(Action settle) { settle_ = std::move(settle); }
  /// Runs until no events are left.
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
  std::vector<Event> events_;  // a heap, the next event in front
  Action settle_;
};

}  // namespace adaptive_train
