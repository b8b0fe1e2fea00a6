// The thread on which a rank's communication runs, for any transport.
#pragma once

#include <functional>

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
};

}  // namespace adaptive_train
