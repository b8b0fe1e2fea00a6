#include "runtime/comm/request.h"

#include <cstdio>
#include <cstdlib>

#include "core/rank_exit.h"
#include "runtime/comm/executor.h"

namespace adaptive_train {
namespace {

/// How long a cancelled operation may take to release its buffers.
constexpr std::chrono::seconds kCancelDeadline{5};

}  // namespace

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    Release();
    operation_ = std::move(other.operation_);
    executor_ = other.executor_;
  }
  return *this;
}

void Request::Cancel() {
  if (!Test()) End("cancelled");
}

/// Soon, on the executor's thread.
void Request::End(const std::string& cause) {
  executor_->Post([operation = operation_, cause, given_up = executor_->main_thread().GivenUp()] {
    given_up ? operation->Abandon() : operation->Cancel(cause);
  });
}

tl::expected<void, CommError> Request::Wait(Deadline deadline) {
  if (!operation_) return {};
  auto operation = operation_;
  if (!operation->Done() && !Await(deadline)) {
    End("missed its deadline");
    Release();
  }
  operation_.reset();
  if (auto failure = operation->Failure()) return tl::unexpected(std::move(*failure));
  return {};
}

/// False: the operation is not over, and has no more time.
bool Request::Await(Deadline deadline) {
  MainThread& main_thread = executor_->main_thread();
  main_thread.WaitsFor(operation_);
  const bool over = operation_->WaitUntil(main_thread.GivenUp() ? RunningClock::now() : deadline);
  main_thread.WaitsFor(nullptr);
  return over;
}

void Request::Release() {
  if (!operation_) return;
  Cancel();
  if (!operation_->WaitUntil(RunningClock::now() + kCancelDeadline)) {
    // The transport still owns memory that is about to be freed: only ending the rank is safe.
    std::fprintf(stderr, "adaptive-train-worker: %s could not be cancelled; the rank ends\n",
                 operation_->Name().c_str());
    std::_Exit(ToInt(RankExit::kTransport));
  }
  operation_.reset();
}

}  // namespace adaptive_train
