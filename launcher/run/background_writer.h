// Writes that may stall with the file system, kept off the thread that hears the ranks.
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

/// One thread that does its tasks one after the other. After the first failure it does no more.
/// Threads: all members from one thread; tasks run on the writer's own.
class BackgroundWriter {
 public:
  using Task = std::function<Result<void>()>;

  BackgroundWriter();
  /// Waits until the task under way has ended: what it uses must outlive it.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Queues a task; never blocks on it. Gives the first failure so far.
  Result<void> Post(Task task);
  /// Waits until all tasks are done, for `deadline` at most. Gives the first failure, or that one.
  Result<void> Finish(std::chrono::milliseconds deadline);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is under way; guarded by mutex_, as all below
  std::optional<Error> failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
