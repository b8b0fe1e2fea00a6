// The threads of the CPU device: they share independent pieces of work and sleep in between.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace adaptive_train::kernels::cpu {

/// Elements per piece of elementwise work: large enough that handing out a piece costs little.
inline constexpr std::int64_t kElementsPerPiece = 16384;

/// Waiting threads block and never spin, since ranks and their communication may share processors.
/// A thread that has not woken up when the work is done is not waited for. The threads take no
/// signals. Only one thread calls at a time.
class ThreadPool {
 public:
  /// Starts threads - 1 threads; the caller is the remaining one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) once for every index in [0, count), with thread in [0, threads()),
  /// and returns when all have ended. Any thread may take any index, so a body must write nothing
  /// that another one reads. The first exception of a body is rethrown here, and the rest is
  /// skipped.
  template <class Body>
  void For(std::int64_t count, const Body& body) {
    if (workers_.empty() || count <= 1) {
      for (std::int64_t index = 0; index < count; ++index) body(index, 0);
    } else {
      Share(count, std::cref(body));
    }
  }

  /// Calls body(begin, end) for pieces of at most `piece` that cover [0, count).
  template <class Body>
  void ForPieces(std::int64_t count, std::int64_t piece, const Body& body) {
    For((count + piece - 1) / piece, [&](std::int64_t index, int) {
      body(index * piece, std::min(count, (index + 1) * piece));
    });
  }

 private:
  using Task = std::function<void(std::int64_t index, int thread)>;

  void Share(std::int64_t count, Task task);
  void Work(int thread);
  void RunWorker(int thread);

  std::mutex mutex_;
  std::condition_variable work_comes_, work_ends_;
  bool stopping_ = false;
  bool open_ = false;        // workers may still join the work
  std::uint64_t round_ = 0;  // number of the work, so that no thread joins it twice
  int working_ = 0;          // workers that joined and have not ended
  std::exception_ptr failure_;

  // Written before the work opens, read by the threads that join it.
  Task task_;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_ = 0;

  std::vector<std::thread> workers_;
};

}  // namespace adaptive_train::kernels::cpu
