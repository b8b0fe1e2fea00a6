// Packing in 4 bits, compared with plain loops in double, and its promise that nothing is lost.
#include "kernels/int4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/scalar.h"
#include "tests/unit/kernels/tested_device.h"

namespace adaptive_train::kernels::int4_test {
namespace {

std::vector<float> Drawn(std::int64_t count, unsigned seed, float size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> drawn(static_cast<std::size_t>(count));
  for (float& value : drawn) value = normal(engine);
  return drawn;
}

std::vector<float> Unpacked(const std::vector<std::byte>& packed, std::size_t count) {
  std::vector<float> values(count, NAN);
  cpu::UnpackInt4(static_cast<std::int64_t>(count), packed.data(), values.data());
  return values;
}

TEST(Int4Test, BytesOfCounts) {
  EXPECT_EQ(Int4Bytes(0), 0u);
  EXPECT_EQ(Int4Bytes(1), 3u);
  EXPECT_EQ(Int4Bytes(127), 66u);
  EXPECT_EQ(Int4Bytes(128), 66u);
  EXPECT_EQ(Int4Bytes(129), 69u);
  EXPECT_EQ(Int4Bytes(256), 132u);
}

class Int4 : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, Int4, testing::Values(1, 2, 3, 64, 127, 128, 129, 255, 256, 1000));

TEST_P(Int4, EachElementIsTheNearestOfItsBlocksNumbersAndTheRestIsKept) {
  const std::int64_t count = GetParam();
  for (const float size : {1e-20F, 1e-3F, 1.0F, 1e20F}) {
    const std::vector<float> gradients = Drawn(count, 1, size), before = Drawn(count, 2, size);
    std::vector<float> residuals = before;
    // One byte off: what arrives need not be aligned.
    std::vector<std::byte> room(Int4Bytes(count) + 2, std::byte{0x5a});
    ASSERT_TRUE(cpu::PackInt4({count, gradients.data(), residuals.data(), 1, room.data() + 1}));
    EXPECT_EQ(room.front(), std::byte{0x5a});
    EXPECT_EQ(room.back(), std::byte{0x5a});
    const std::vector<std::byte> packed(room.begin() + 1, room.end() - 1);
    EXPECT_TRUE(cpu::Int4ScalesRight(count, packed.data()));
    const std::vector<float> sent = Unpacked(packed, gradients.size());
    for (std::size_t block = 0; block < gradients.size(); block += kInt4Block) {
      const std::size_t end = std::min(gradients.size(), block + kInt4Block);
      double largest = 0;
      for (std::size_t i = block; i < end; ++i)
        largest = std::max(largest, std::abs(static_cast<double>(gradients[i] + before[i])));
      for (std::size_t i = block; i < end; ++i) {
        const float e = gradients[i] + before[i];
        EXPECT_EQ(sent[i] + residuals[i], e) << "element " << i;
        EXPECT_EQ(static_cast<double>(sent[i]) + static_cast<double>(residuals[i]),
                  static_cast<double>(e));
        // Half a step, of scales that are up to 2^-7 too large.
        EXPECT_LE(std::abs(static_cast<double>(residuals[i])), 0.505 * largest / 7 * 1.0001);
      }
    }
    std::vector<float> sums = before;
    cpu::AddInt4(count, packed.data(), sums.data());
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], before[i] + sent[i]);
  }
}

TEST_P(Int4, WithoutFeedbackTheSameIsSent) {
  const std::int64_t count = GetParam();
  const std::vector<float> gradients = Drawn(count, 3);
  std::vector<float> residuals(gradients.size());
  std::vector<std::byte> with(Int4Bytes(count)), without(Int4Bytes(count));
  ASSERT_TRUE(cpu::PackInt4({count, gradients.data(), residuals.data(), 1, with.data()}));
  ASSERT_TRUE(cpu::PackInt4({count, gradients.data(), nullptr, 1, without.data()}));
  EXPECT_EQ(with, without);
}

TEST_P(Int4, OldResidualsDecay) {
  const std::int64_t count = GetParam();
  const std::vector<float> gradients = Drawn(count, 4), before = Drawn(count, 5);
  std::vector<float> kept = before, decayed = before;
  std::vector<std::byte> packed(Int4Bytes(count));
  cpu::PackInt4({count, gradients.data(), kept.data(), 1, packed.data()});
  cpu::PackInt4({count, gradients.data(), decayed.data(), 0.75, packed.data()});
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(decayed[i], kept[i] - 0.25F * before[i]) << "element " << i;
}

TEST_P(Int4, ABlockThatIsNotFiniteIsKeptAndTold) {
  const auto count = static_cast<std::size_t>(GetParam());
  for (const float bad : {std::numeric_limits<float>::infinity(), NAN, -0x1.1p100F}) {
    std::vector<float> gradients = Drawn(GetParam(), 6), residuals(count);
    const std::size_t place = count - 1, block = place / kInt4Block * kInt4Block;
    gradients[place] = bad;
    std::vector<std::byte> packed(Int4Bytes(GetParam()));
    EXPECT_FALSE(cpu::PackInt4({GetParam(), gradients.data(), residuals.data(), 1, packed.data()}));
    const std::vector<float> sent = Unpacked(packed, count);
    for (std::size_t i = block; i < count; ++i) {
      EXPECT_EQ(sent[i], 0);
      if (i != place) {
        EXPECT_EQ(residuals[i], gradients[i]);
      }
    }
    EXPECT_FALSE(std::isfinite(residuals[place])) << "it must not come back";
  }
}

TEST(Int4Test, SumsMayBeLargerThanWhatIsSummed) {
  const std::vector<float> sums(128, 0x1p126F), larger(128, 0x1.1p126F);
  std::vector<std::byte> packed(Int4Bytes(128));
  EXPECT_TRUE(cpu::PackInt4({128, sums.data(), nullptr, 1, packed.data()}));
  EXPECT_TRUE(cpu::Int4ScalesRight(128, packed.data()));
  EXPECT_NEAR(Unpacked(packed, 128)[127] / 0x1p126F, 1, 0.01);
  EXPECT_FALSE(cpu::PackInt4({128, larger.data(), nullptr, 1, packed.data()}));
}

TEST_P(Int4, AllInstructionSetsGiveTheSameBits) {
  const std::vector<float> gradients = Drawn(GetParam(), 8), before = Drawn(GetParam(), 9);
  std::vector<std::byte> first;
  std::vector<float> first_residuals;
  OnEveryInstructionSet([&](const std::string& name) {
    std::vector<float> residuals = before;
    std::vector<std::byte> packed(Int4Bytes(GetParam()));
    ASSERT_TRUE(
        cpu::PackInt4({GetParam(), gradients.data(), residuals.data(), 0.9, packed.data()}));
    if (first.empty()) first = packed, first_residuals = residuals;
    EXPECT_EQ(packed, first) << name;
    EXPECT_EQ(residuals, first_residuals) << name;
    EXPECT_EQ(Unpacked(packed, gradients.size()), Unpacked(first, gradients.size())) << name;
  });
}

TEST_P(Int4, WhatIsTooSmallIsKept) {
  const std::vector<float> gradients = Drawn(GetParam(), 7, 0x1p-140F);
  std::vector<float> residuals(gradients.size());
  std::vector<std::byte> packed(Int4Bytes(GetParam()));
  EXPECT_TRUE(cpu::PackInt4({GetParam(), gradients.data(), residuals.data(), 1, packed.data()}));
  EXPECT_EQ(residuals, gradients);
  EXPECT_EQ(Unpacked(packed, gradients.size()), std::vector<float>(gradients.size()));
}

TEST(Int4Test, ScalesThatCouldOverflowAreNotRight) {
  std::vector<std::byte> packed(Int4Bytes(300));
  const auto right_with = [&](std::size_t block, float scale) {
    std::vector<std::byte> changed = packed;
    const BFloat16 half = ToBFloat16(scale);
    std::memcpy(changed.data() + block * Int4Bytes(kInt4Block), &half, sizeof half);
    return cpu::Int4ScalesRight(300, changed.data());
  };
  for (const std::size_t block : {0u, 1u, 2u}) {
    EXPECT_TRUE(right_with(block, 0));
    EXPECT_TRUE(right_with(block, kInt4LargestScale));
    for (const float wrong : {0x1p125F, -1.0F, -0.0F, NAN, std::numeric_limits<float>::infinity()})
      EXPECT_FALSE(right_with(block, wrong)) << wrong;
  }
  EXPECT_TRUE(std::isfinite(-8 * kInt4LargestScale)) << "of any number in any such block";
}

}  // namespace
}  // namespace adaptive_train::kernels::int4_test
