// Memory that is given back and taken again.
#include "kernels/recycled_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace adaptive_train::kernels::recycled_memory_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(RecycledMemory, WhatWasGivenBackIsTakenAgain) {
  RecycledMemory memory;
  void* const first = memory.Take(3 * kMiB);
  void* const second = memory.Take(3 * kMiB);
  EXPECT_NE(first, second);
  memory.GiveBack(first, 3 * kMiB);
  memory.GiveBack(second, 3 * kMiB);
  EXPECT_EQ(memory.Take(3 * kMiB), second);  // the last one used
  EXPECT_EQ(memory.Take(3 * kMiB), first);
  EXPECT_EQ(memory.bytes(), 6 * kMiB);
  memory.GiveBack(first, 3 * kMiB);
  memory.GiveBack(second, 3 * kMiB);
}

TEST(RecycledMemory, ArraysOfNearlyOneLengthShareABlock) {
  RecycledMemory memory;
  void* const block = memory.Take(5 * kMiB - 1000);
  memory.GiveBack(block, 5 * kMiB - 1000);
  EXPECT_EQ(memory.Take(4 * kMiB + 1), block);
  EXPECT_EQ(memory.bytes(), 5 * kMiB);
  void* const other = memory.Take(4 * kMiB);
  EXPECT_EQ(memory.bytes(), 9 * kMiB);
  memory.GiveBack(block, 4 * kMiB + 1);
  memory.GiveBack(other, 4 * kMiB);
}

/// What is asked for changes its length in every round, as sparse messages do.
TEST(RecycledMemory, AQuarterMoreThanWasEverUsedIsKept) {
  RecycledMemory memory;
  constexpr std::size_t kBlocks = 5, kMost = 16 * kMiB;
  for (std::size_t size = kMost; size > kMiB / 2; size -= size / 7) {
    std::vector<void*> taken;
    for (std::size_t i = 0; i < kBlocks; ++i) taken.push_back(memory.Take(size));
    EXPECT_LE(memory.bytes(), kBlocks * kMost * 5 / 4) << size;
    for (void* const block : taken) memory.GiveBack(block, size);
    EXPECT_LE(memory.bytes(), kBlocks * kMost * 5 / 4) << size;
  }
}

TEST(RecycledMemory, ThreadsGiveEachOtherTheirBlocks) {
  constexpr int kThreads = 4, kRounds = 500;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&wrong, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const auto size = static_cast<std::size_t>(20000 + 1000 * (round % 9));
        RecycledVector<int> mine(size, thread);
        const RecycledVector<int> copy(mine);
        mine = {};
        const auto sum = std::accumulate(copy.begin(), copy.end(), 0LL);
        if (sum != static_cast<long long>(size) * thread) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RecycledVector, SmallOnesAndGrowingOnesKeepTheirContent) {
  RecycledVector<int> numbers;
  for (int i = 0; i < 100000; ++i) numbers.push_back(i);
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(RecycledVector<float>(3, 0.5F), (RecycledVector<float>{0.5F, 0.5F, 0.5F}));
}

}  // namespace
}  // namespace adaptive_train::kernels::recycled_memory_test
