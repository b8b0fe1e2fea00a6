#include "launcher/simulator/event_loop.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {

namespace {

/// Times this close, in seconds, count as equal: rounding differences are settled together.
constexpr double kSameTime = 1e-12;

}  // namespace

void EventLoop::At(double time, Action action) {
  if (!std::isfinite(time)) return;
  events_.push_back({std::max(time, now_), asked_++, std::move(action)});
  std::push_heap(events_.begin(), events_.end(), Later);
}

void EventLoop::Run() {
  while (true) {
    while (!events_.empty() && events_.front().time <= now_ + kSameTime) {
      std::pop_heap(events_.begin(), events_.end(), Later);
      const Event event = std::move(events_.back());
      events_.pop_back();
      event.action();
    }
    if (settle_) settle_();
    if (events_.empty()) return;
    now_ = std::max(now_, events_.front().time);
  }
}

}  // namespace adaptive_train
