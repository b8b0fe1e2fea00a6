// An asynchronous transfer or collective, and the handle on which its caller waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "core/running_clock.h"

namespace adaptive_train {

/// Why a transfer failed.
struct CommError {
  std::string operation;  // "all-reduce 17"
  int peer = -1;          // rank, -1 = none in particular
  std::string cause;
};

using Deadline = RunningClock::time_point;

/// The state of an operation, shared by the communicator's thread and the waiting thread. It
/// completes exactly once, on the executor's thread.
class Operation {
 public:
  explicit Operation(std::string name) : name_(std::move(name)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  const std::string& Name() const { return name_; }

  // Called on the executor's thread.
  virtual void Start() = 0;
  /// Releases all buffers soon: every part under way ends, then the operation completes.
  virtual void Cancel(const std::string& cause) = 0;

  /// When the executor carries nothing any more: over at once, as a failure.
  void Abandon() {
    if (!Done()) Complete(CommError{name_, -1, "given up"});
  }

  // On any thread.
  bool WaitUntil(Deadline deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return done_; });
  }
  bool Done() const {
    std::lock_guard lock(mutex_);
    return done_;
  }
  /// After Done(): empty on success.
  std::optional<CommError> Failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 protected:
  void Complete(std::optional<CommError> failure) {
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    done_ = true;
    changed_.notify_all();
  }

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<CommError> failure_;
};

class Executor;

/// The caller's handle. The operation's buffers belong to the communicator until Wait or Test
/// reports that it is over. The destructor cancels the operation and waits for its end, so that no
/// buffer is written later. One thread at a time.
class Request {
 public:
  Request() = default;
  Request(std::shared_ptr<Operation> operation, Executor* executor)
      : operation_(std::move(operation)), executor_(executor) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&& other) noexcept;
  ~Request() { Release(); }

  /// Blocks until the operation is over or the deadline has passed. A missed deadline cancels the
  /// operation, waits until its buffers are free, and is an error that names the operation. After
  /// Transport::GiveUp all are errors at once. From the rank's main thread.
  tl::expected<void, CommError> Wait(Deadline deadline);
  /// True once the operation is over; Wait then returns its outcome at once.
  bool Test() const { return !operation_ || operation_->Done(); }
  /// Asks the operation to end; Wait returns when its buffers are free. A cancelled send breaks the
  /// link to its peer, since some of its bytes may have been sent.
  void Cancel();

 private:
  bool Await(Deadline deadline);
  void End(const std::string& cause);
  void Release();

  std::shared_ptr<Operation> operation_;
  Executor* executor_ = nullptr;
};

}  // namespace adaptive_train
