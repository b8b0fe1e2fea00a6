#include "runtime/comm/nccl_executor.h"

#include <pthread.h>

#include <chrono>
#include <ctime>
#include <iterator>
#include <utility>

namespace adaptive_train {
namespace {

/// Between two questions: little beside a collective, and little processor time.
constexpr std::chrono::microseconds kPause{200};

}  // namespace

NcclExecutor::NcclExecutor(std::function<void()> begin)
    : thread_([this, begin = std::move(begin)] {
        ::pthread_setname_np(::pthread_self(), "nccl");
        if (begin) begin();
        Loop();
      }) {}

NcclExecutor::~NcclExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclExecutor::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

double NcclExecutor::CpuSeconds() const {
  clockid_t clock;
  timespec time{};
  if (::pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) return 0;
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

bool NcclExecutor::Next(std::deque<std::function<void()>>& tasks) {
  std::unique_lock lock(mutex_);
  const auto woken = [this] { return stop_ || !tasks_.empty(); };
  if (polls_.empty())
    changed_.wait(lock, woken);
  else
    changed_.wait_for(lock, kPause, [this] { return !tasks_.empty(); });
  tasks = std::exchange(tasks_, {});
  return !stop_ || !tasks.empty() || !polls_.empty();
}

void NcclExecutor::Loop() {
  for (std::deque<std::function<void()>> tasks; Next(tasks);) {
    for (const auto& task : tasks) task();
    // A poll may add others at the end.
    for (auto poll = polls_.begin(); poll != polls_.end();)
      poll = (*poll)() ? std::next(poll) : polls_.erase(poll);
  }
}

}  // namespace adaptive_train
