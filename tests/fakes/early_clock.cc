// A fault for tests, by LD_PRELOAD: a program whose clock is an hour ahead.
#include <time.h>

namespace {
constexpr time_t kAhead = 3600;
}  // namespace

extern "C" __attribute__((visibility("default"))) time_t time(time_t* result) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += kAhead;
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}
