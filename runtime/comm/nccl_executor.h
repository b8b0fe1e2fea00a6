// The thread on which a rank calls NCCL.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "runtime/comm/executor.h"

namespace adaptive_train {

/// One thread per rank, since calls for several communicators of a GPU must come in one order. NCCL
/// wakes nobody: while operations are under way the thread asks a few thousand times a second.
class NcclExecutor final : public Executor {
 public:
  /// `begin` is called first on the thread: it makes the rank's GPU that thread's.
  explicit NcclExecutor(std::function<void()> begin = {});
  /// Runs what was posted, then ends. Communicators must be gone.
  ~NcclExecutor() override;
  NcclExecutor(const NcclExecutor&) = delete;
  NcclExecutor& operator=(const NcclExecutor&) = delete;

  void Post(std::function<void()> task) override;
  double CpuSeconds() const override;

  /// In a task: calls `poll` again and again until it returns false. It must not block.
  void Poll(std::function<bool()> poll) { polls_.push_back(std::move(poll)); }

 private:
  void Loop();
  /// False: the executor is to end, and nothing is left to do.
  bool Next(std::deque<std::function<void()>>& tasks);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::list<std::function<bool()>> polls_;   // of the thread only
  mutable std::thread thread_;               // mutable: reading its clock is logically const
};

}  // namespace adaptive_train
