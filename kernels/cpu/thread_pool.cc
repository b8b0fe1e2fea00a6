// Opens work, lets threads join it, and waits for those that joined.
#include "kernels/cpu/thread_pool.h"

#include <pthread.h>

#include <cassert>
#include <csignal>
#include <utility>

namespace adaptive_train::kernels::cpu {
namespace {

/// Threads started in its scope inherit a mask that leaves every signal to other threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

ThreadPool::ThreadPool(int threads) {
  assert(threads >= 1);
  const SignalsBlocked blocked;
  for (int thread = 1; thread < threads; ++thread)
    workers_.emplace_back([this, thread] { RunWorker(thread); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_comes_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Share(std::int64_t count, Task task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    count_ = count;
    next_ = 0;
    open_ = true;
    ++round_;
  }
  work_comes_.notify_all();
  Work(0);
  std::unique_lock lock(mutex_);
  open_ = false;
  work_ends_.wait(lock, [this] { return working_ == 0; });
  if (std::exception_ptr failure = std::exchange(failure_, nullptr))
    std::rethrow_exception(failure);
}

void ThreadPool::Work(int thread) {
  try {
    for (std::int64_t index = next_++; index < count_; index = next_++) task_(index, thread);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    next_ = count_;
  }
}

void ThreadPool::RunWorker(int thread) {
  std::uint64_t joined = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_comes_.wait(lock, [&] { return stopping_ || (open_ && round_ != joined); });
    if (stopping_) return;
    joined = round_;
    ++working_;
    lock.unlock();
    Work(thread);
    lock.lock();
    if (--working_ == 0) work_ends_.notify_one();
  }
}

}  // namespace adaptive_train::kernels::cpu
