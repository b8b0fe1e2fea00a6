// The thread on which a rank's communication runs, for any transport.
#pragma once

#include <functional>

#include "runtime/comm/main_thread.h"

namespace adaptive_train {

/// One thread beside the rank's own, on which operations start, progress and end. It sleeps while
/// idle. Any thread may call; no call blocks.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Runs `task` on the executor's thread, in the order of the calls. A task must not block.
  virtual void Post(std::function<void()> task) = 0;

  /// Processor time of the thread since its start.
  virtual double CpuSeconds() const = 0;

  /// What the rank's main thread is at, which waits for what runs here.
  MainThread& main_thread() { return main_thread_; }

 private:
  MainThread main_thread_;
};

}  // namespace adaptive_train
