#include "runtime/comm/main_thread.h"

#include <utility>

#include "runtime/comm/request.h"

namespace adaptive_train {

void MainThread::WorksAt(std::string_view work) {
  const std::lock_guard lock(mutex_);
  if (work_ == work) return;
  work_ = work;
  since_ = Clock::now();
}

void MainThread::BeginsStep(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  micro_batch_ = 0;
}

void MainThread::TakesMicroBatch(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  micro_batch_ = number;
  since_ = Clock::now();
}

void MainThread::WaitsFor(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  awaited_ = std::move(operation);
  since_ = Clock::now();
}

RankStatus MainThread::Status() const {
  const std::lock_guard lock(mutex_);
  RankStatus status;
  status.step = step_;
  status.micro_batch = micro_batch_;
  status.work = work_;
  if (awaited_) status.operation = awaited_->Name();
  status.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  return status;
}

std::shared_ptr<Operation> MainThread::GiveUp() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  return awaited_;
}

bool MainThread::GivenUp() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

}  // namespace adaptive_train
