#include "launcher/run/background_writer.h"

#include <fmt/format.h>

namespace adaptive_train {

BackgroundWriter::BackgroundWriter() : thread_([this] { Run(); }) {}

BackgroundWriter::~BackgroundWriter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void BackgroundWriter::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    const Task task = tasks_.front();
    lock.unlock();
    const Result<void> done = task();
    lock.lock();
    tasks_.pop_front();
    if (!done) {
      failure_ = done.error();
      tasks_.clear();
    }
    changed_.notify_all();
  }
}

Result<void> BackgroundWriter::Post(Task task) {
  std::lock_guard lock(mutex_);
  if (failure_) return tl::unexpected(*failure_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return {};
}

Result<void> BackgroundWriter::Finish(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, deadline, [this] { return tasks_.empty(); });
  if (failure_) return tl::unexpected(*failure_);
  if (!done) {
    return Fail(
        fmt::format("writes to the run folder did not end within {} s", deadline.count() / 1000),
        ExitCode::kRankFailure);
  }
  return {};
}

}  // namespace adaptive_train
