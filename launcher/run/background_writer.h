// Writes that may stall with the file system, away from the thread that listens to the ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/result.h"

namespace adaptive_train {

/// One thread that runs its tasks in order. After the first failure it runs no more. Threads: all
/// members from one thread; tasks run on the writer's own.
class BackgroundWriter {
 public:
  using Task = std::function<Result<void>()>;

  BackgroundWriter();
  /// Waits until the current task has ended: the task's data must outlive it.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Queues a task without blocking. Returns the first failure so far.
  Result<void> Post(Task task);
  /// Waits for all tasks, for at most `deadline`. Returns the first failure, or the missed
  /// deadline.
  Result<void> Finish(std::chrono::milliseconds deadline);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is running; guarded by mutex_, like all below
  std::optional<Error> failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
