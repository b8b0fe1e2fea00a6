// The device's threads: every piece runs once, exceptions propagate, no thread is left behind.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

namespace adaptive_train::kernels::cpu::thread_pool_test {
namespace {

TEST(ThreadPool, CallsEveryIndexOnceRoundAfterRound) {
  for (const int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(threads, pool.threads());
    for (int round = 0; round < 200; ++round) {
      const std::int64_t count = round % 23;
      std::vector<int> calls(static_cast<std::size_t>(count));
      pool.For(count, [&](std::int64_t index, int thread) {
        ASSERT_TRUE(thread >= 0 && thread < threads);
        ++calls[static_cast<std::size_t>(index)];
      });
      EXPECT_EQ(std::vector<int>(calls.size(), 1), calls);
    }
  }
}

TEST(ThreadPool, PiecesCoverTheRange) {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 9, 10, 11, 95}) {
    std::vector<int> calls(static_cast<std::size_t>(count));
    pool.ForPieces(count, 10, [&](std::int64_t begin, std::int64_t end) {
      ASSERT_LE(end - begin, 10);
      for (std::int64_t i = begin; i < end; ++i) ++calls[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(std::vector<int>(calls.size(), 1), calls);
  }
}

// Two pieces that wait for each other end only if two threads run them.
TEST(ThreadPool, WorksAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived = 0;
  std::set<int> threads;
  std::mutex mutex;
  pool.For(2, [&](std::int64_t, int thread) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    threads.insert(thread);
  });
  EXPECT_EQ((std::set<int>{0, 1}), threads);
}

TEST(ThreadPool, ThrowsWhatABodyThrewAndGoesOn) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.For(100,
                          [&](std::int64_t index, int) {
                            if (index == 60) throw std::runtime_error("60");
                          }),
                 std::runtime_error);
    std::atomic<int> calls = 0;
    pool.For(100, [&](std::int64_t, int) { ++calls; });
    EXPECT_EQ(100, calls);
  }
}

TEST(ThreadPool, LeavesSignalsToOthers) {
  ThreadPool pool(2);
  std::atomic<int> arrived = 0, blocked = 0;
  pool.For(2, [&](std::int64_t, int thread) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    if (thread == 1 && sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1)
      ++blocked;
  });
  EXPECT_EQ(1, blocked);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(0, sigismember(&mask, SIGTERM)) << "the caller's mask is as it was";
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu::thread_pool_test
