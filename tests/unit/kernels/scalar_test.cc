// Every value of the 16-bit formats.
#include "kernels/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace adaptive_train::kernels::scalar_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Float16 Half(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

/// Follows the definition of the format.
double ValueOf(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  const double fraction = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16, EveryValueThereAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = ToFloat(Half(bits));
    const std::uint32_t magnitude = bits & 0x7fff;
    if (magnitude > 0x7c00) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(value)))) << bits;
      continue;
    }
    if (magnitude == 0x7c00) {
      EXPECT_EQ(bits == 0x7c00 ? kInfinity : -kInfinity, value);
    } else {
      EXPECT_EQ(ValueOf(bits), value) << bits;
    }
    EXPECT_EQ(bits != magnitude, std::signbit(value)) << bits;
    EXPECT_EQ(bits, ToFloat16(value).bits);
  }
}

// Halfway between two neighbours the even one is chosen; infinity takes the place of the next
// value.
TEST(Float16, RoundsToTheNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto middle = static_cast<float>((ValueOf(bits) + ValueOf(bits + 1)) / 2);
    const std::uint32_t even = bits + (bits & 1);
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const float signed_middle = sign == 0 ? middle : -middle;
      EXPECT_EQ(even | sign, ToFloat16(signed_middle).bits) << bits;
      EXPECT_EQ(bits | sign, ToFloat16(std::nextafter(signed_middle, 0.0F)).bits) << bits;
      EXPECT_EQ((bits + 1) | sign,
                ToFloat16(std::nextafter(signed_middle, sign == 0 ? kInfinity : -kInfinity)).bits)
          << bits;
    }
  }
}

TEST(Float16, BeyondItsRange) {
  EXPECT_EQ(0x7c00, ToFloat16(1e30F).bits);
  EXPECT_EQ(0xfc00, ToFloat16(-kInfinity).bits);
  EXPECT_EQ(0x0000, ToFloat16(1e-30F).bits);
  EXPECT_EQ(0x8000, ToFloat16(-std::numeric_limits<float>::denorm_min()).bits);
}

TEST(BFloat16, EveryValueThereAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = ToFloat(BFloat16{static_cast<std::uint16_t>(bits)});
    if ((bits & 0x7fff) > 0x7f80) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(value)))) << bits;
    } else {
      EXPECT_EQ(bits, ToBFloat16(value).bits);
    }
  }
  // A NaN whose set bits are all in the dropped half.
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0x7f80'0001U)))));
}

TEST(BFloat16, RoundsToTheNearestTiesToEven) {
  EXPECT_EQ(0x3f80, ToBFloat16(1 + 0x1p-8F).bits);
  EXPECT_EQ(0x3f81, ToBFloat16(1 + 0x1p-8F + 0x1p-20F).bits);
  EXPECT_EQ(0x3f82, ToBFloat16(1 + 3 * 0x1p-8F).bits);
  EXPECT_EQ(0xbf82, ToBFloat16(-1 - 3 * 0x1p-8F).bits);
  EXPECT_EQ(0x7f80, ToBFloat16(std::numeric_limits<float>::max()).bits);
}

}  // namespace
}  // namespace adaptive_train::kernels::scalar_test
