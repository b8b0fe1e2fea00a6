// Values as integers, packed at the places of a union and unpacked.
#include "runtime/compress/packed_numbers.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <limits>
#include <random>

namespace adaptive_train::packed_numbers_test {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

TEST(FixedPoint, TheNumbersOfAllRanksSumUpWithin32Bits) {
  for (int ranks : {1, 2, 3, 7, 16, 1000, 4096}) {
    for (float largest : {1.0f, 0x1.fffffep0f, 3e-20f, FLT_MAX, FLT_MIN, kSmallest}) {
      const FixedPoint fixed(largest, ranks);
      const std::int64_t sum = std::int64_t{ranks} * fixed.NumberOf(largest);
      EXPECT_LE(sum, INT32_MAX) << ranks << " " << largest;
      EXPECT_EQ(fixed.NumberOf(-largest), -fixed.NumberOf(largest));
      // The bits are used, down to float32's smallest value.
      const bool all_bits = fixed.quantum() > static_cast<double>(kSmallest);
      EXPECT_GE(sum, all_bits ? INT32_MAX / 4 - ranks : 1);
    }
  }
}

TEST(FixedPoint, WhatIsNotSentIsLeftExactly) {
  std::mt19937_64 engine(1);
  for (float largest : {1.0f, 7.3e-12f, 1e38f, 0x1p-140f}) {
    const FixedPoint fixed(largest, 16);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int i = 0; i < 10'000; ++i) {
      const float value = largest * uniform(engine) * std::ldexp(1.0f, -i % 40);
      const float sent = fixed.Sent(value), left = value - sent;
      EXPECT_EQ(static_cast<double>(sent), fixed.NumberOf(value) * fixed.quantum());
      EXPECT_EQ(static_cast<double>(sent) + static_cast<double>(left), static_cast<double>(value));
      EXPECT_LE(std::abs(static_cast<double>(left)), fixed.quantum() / 2);
    }
  }
}

TEST(FixedPoint, NothingButZeros) {
  const FixedPoint fixed(0, 4);
  EXPECT_EQ(fixed.NumberOf(0.0f), 0);
  EXPECT_EQ(fixed.NumberOf(-0.0f), 0);
  EXPECT_EQ(fixed.ValueOf(0), 0.0f);
}

TEST(PackedNumbers, ThereAndBackOverPieces) {
  const std::vector<std::int64_t> pieces = {70, 0, 1, 64, 130};
  const FixedPoint fixed(8, 2);
  std::mt19937_64 engine(2);
  std::vector<std::uint64_t> whole, selected;
  std::vector<float> values, expected;
  std::size_t count = 0;
  for (const std::int64_t length : pieces) {
    for (std::int64_t i = 0; i < length; ++i) {
      if (i % 64 == 0) whole.push_back(0), selected.push_back(0);
      expected.push_back(0);
      const std::uint64_t bit = std::uint64_t{1} << i % 64;
      if (engine() % 2 == 0) continue;
      whole.back() |= bit;
      ++count;
      if (engine() % 2 == 0) continue;
      selected.back() |= bit;
      values.push_back(static_cast<float>(engine() % 17) - 8);
      expected.back() = values.back();
    }
  }
  const auto numbers = PackNumbers(whole, selected, values, fixed);
  ASSERT_EQ(numbers.size(), count);
  std::vector<float> out(expected.size(), -1.0f);
  EXPECT_TRUE(UnpackNumbers(pieces, whole, numbers, fixed, out));
  EXPECT_TRUE(out == expected);
}

TEST(PackedNumbers, ASumThatFloat32CannotHoldIsSaid) {
  const FixedPoint fixed(FLT_MAX, 2);
  const std::vector<std::uint64_t> one = {1};
  const std::vector<std::int32_t> numbers = {2 * fixed.NumberOf(FLT_MAX)};
  const std::vector<std::int64_t> pieces = {1};
  std::vector<float> out(1);
  EXPECT_FALSE(UnpackNumbers(pieces, one, numbers, fixed, out));
}

}  // namespace
}  // namespace adaptive_train::packed_numbers_test
