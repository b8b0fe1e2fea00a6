// Memory that is freed and allocated again.
#include "kernels/memory_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace adaptive_train::kernels::memory_pool_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(MemoryPool, WhatWasFreedIsGivenAgain) {
  MemoryPool memory;
  void* const first = memory.Allocate(3 * kMiB);
  void* const second = memory.Allocate(3 * kMiB);
  EXPECT_NE(first, second);
  memory.Free(first, 3 * kMiB);
  memory.Free(second, 3 * kMiB);
  EXPECT_EQ(memory.Allocate(3 * kMiB), second);  // the last one used
  EXPECT_EQ(memory.Allocate(3 * kMiB), first);
  EXPECT_EQ(memory.bytes(), 6 * kMiB);
  memory.Free(first, 3 * kMiB);
  memory.Free(second, 3 * kMiB);
}

TEST(MemoryPool, ArraysOfNearlyOneLengthShareABlock) {
  MemoryPool memory;
  void* const block = memory.Allocate(5 * kMiB - 1000);
  memory.Free(block, 5 * kMiB - 1000);
  EXPECT_EQ(memory.Allocate(4 * kMiB + 1), block);
  EXPECT_EQ(memory.bytes(), 5 * kMiB);
  void* const other = memory.Allocate(4 * kMiB);
  EXPECT_EQ(memory.bytes(), 9 * kMiB);
  memory.Free(block, 4 * kMiB + 1);
  memory.Free(other, 4 * kMiB);
}

/// What is asked for changes its length in every round, as sparse messages do.
TEST(MemoryPool, AQuarterMoreThanWasEverUsedIsKept) {
  MemoryPool memory;
  constexpr std::size_t kBlocks = 5, kMost = 16 * kMiB;
  for (std::size_t size = kMost; size > kMiB / 2; size -= size / 7) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(memory.Allocate(size));
    EXPECT_LE(memory.bytes(), kBlocks * kMost * 5 / 4) << size;
    for (void* const block : blocks) memory.Free(block, size);
    EXPECT_LE(memory.bytes(), kBlocks * kMost * 5 / 4) << size;
  }
}

TEST(MemoryPool, ThreadsUseEachOthersBlocks) {
  constexpr int kThreads = 4, kRounds = 500;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&wrong, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const auto size = static_cast<std::size_t>(20000 + 1000 * (round % 9));
        PooledVector<int> mine(size, thread);
        const PooledVector<int> copy(mine);
        mine = {};
        const auto sum = std::accumulate(copy.begin(), copy.end(), 0LL);
        if (sum != static_cast<long long>(size) * thread) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PooledVector, SmallOnesAndGrowingOnesKeepTheirContent) {
  PooledVector<int> numbers;
  for (int i = 0; i < 100000; ++i) numbers.push_back(i);
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(PooledVector<float>(3, 0.5F), (PooledVector<float>{0.5F, 0.5F, 0.5F}));
}

}  // namespace
}  // namespace adaptive_train::kernels::memory_pool_test
