// What was made shorter comes back bit by bit, and what would not be shorter is left alone.
#include "runtime/compress/lossless.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "kernels/int4.h"

namespace adaptive_train::lossless_test {
namespace {

using Bytes = kernels::PooledVector<std::byte>;

Bytes Random(std::size_t count) {
  std::mt19937 engine(7);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  return bytes;
}

/// Normal values in four bits.
Bytes Packed(std::int64_t count) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(engine);
  Bytes packed(kernels::Int4Bytes(count));
  kernels::cpu::PackInt4({.count = count, .gradients = values.data(), .packed = packed.data()});
  return packed;
}

TEST(Lossless, NumbersInFourBitsBecomeShorterAndComeBack) {
  for (const std::int64_t count : {128, 1000, 100'000}) {
    const Bytes packed = Packed(count);
    Bytes out(3, std::byte{9});
    if (!AppendCompressed(out, packed)) {
      EXPECT_EQ(out.size(), 3u);
      EXPECT_LT(count, 100'000);
      continue;
    }
    EXPECT_LT(out.size() - 3, packed.size());
    EXPECT_EQ(Decompressed(std::span(out).subspan(3), packed.size()), packed);
    const double share = static_cast<double>(out.size() - 3) / static_cast<double>(packed.size());
    EXPECT_LT(share, count < 100'000 ? 1 : .9);
  }
}

TEST(Lossless, WhatIsNoShorterIsLeftAlone) {
  for (const std::size_t count : {0, 1, 2, 100, 70'000}) {
    Bytes out(5);
    EXPECT_FALSE(AppendCompressed(out, Random(count))) << count;
    EXPECT_EQ(out.size(), 5u);
  }
}

TEST(Lossless, WhatIsChangedCutOrOfAnotherSizeIsRefused) {
  const Bytes packed = Packed(20'000);
  Bytes shorter;
  ASSERT_TRUE(AppendCompressed(shorter, packed));
  EXPECT_FALSE(Decompressed(shorter, packed.size() - 1));
  EXPECT_FALSE(Decompressed(shorter, packed.size() + 1));
  EXPECT_FALSE(Decompressed({}, 0));
  EXPECT_FALSE(Decompressed({}, 100));
  for (std::size_t size = 0; size < shorter.size(); size += 97)
    EXPECT_FALSE(Decompressed(std::span(shorter).first(size), packed.size())) << size;
  Bytes longer = shorter;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decompressed(longer, packed.size()));
  for (std::size_t at = 0; at < shorter.size(); at += 31) {
    Bytes changed = shorter;
    changed[at] ^= std::byte{0x5a};
    (void)Decompressed(changed,
                       packed.size());  // other bytes, as many, or none: what matters is asan
  }
  EXPECT_EQ(Decompressed(shorter, packed.size()), packed) << "after all that";
}

TEST(Lossless, ThreadsDoNotMeet) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&right, i] {
      const Bytes packed = Packed(10'000 + 128 * i);
      for (int again = 0; again < 20; ++again) {
        Bytes shorter;
        if (AppendCompressed(shorter, packed) && Decompressed(shorter, packed.size()) == packed)
          ++right;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace adaptive_train::lossless_test
