// Emulated tiles against their definition, worked out by hand, and products on them bit by bit.
#include "tests/unit/kernels/emulated_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/tile_product.h"
#include "tests/unit/kernels/arrays.h"

namespace adaptive_train::kernels::cpu::emulated_tiles_test {
namespace {

using Pairs = std::array<std::array<std::uint16_t, 32>, 16>;
using Sums = std::array<std::array<float, 16>, 16>;

struct alignas(64) Config {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16};
};

std::uint16_t Bits(float value) { return ToBFloat16(value).bits; }

/// Tile 0 += tile 1 tile 2.
Sums AddedProducts(const Sums& sums, const Pairs& a, const Pairs& b) {
  EmulatedTiles tiles;
  const Config config;
  tiles.LoadConfig(&config);
  tiles.Load(0, sums.data(), 64);
  tiles.Load(1, a.data(), 64);
  tiles.Load(2, b.data(), 64);
  tiles.AddProducts(0, 1, 2);
  Sums result;
  tiles.Store(0, result.data(), 64);
  return result;
}

/// One row of numbers times one column of them, in pairs.
float Row(const std::vector<float>& a, const std::vector<float>& b, float sum = 0) {
  Pairs first{}, second{};
  for (std::size_t i = 0; i < a.size(); ++i) {
    first[3][i] = Bits(a[i]);
    second[i / 2][2 * 5 + i % 2] = Bits(b[i]);
  }
  Sums sums{};
  sums[3][5] = sum;
  const Sums result = AddedProducts(sums, first, second);
  return result[3][5];
}

TEST(EmulatedTiles, MultiplyPairs) {
  EXPECT_EQ(Row({2, 3, 5, 7}, {11, 13, 17, 19}, 1), 1 + 22 + 39 + 85 + 133);
  Pairs a{}, b{};
  for (std::size_t i = 0; i < 16; ++i) {
    a[i][2 * i] = Bits(2);  // the second operand's row i, twice
    for (std::size_t n = 0; n < 16; ++n) b[i][2 * n] = Bits(static_cast<float>(i + 16 * n));
  }
  const Sums sums = AddedProducts({}, a, b);
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n)
      EXPECT_EQ(sums[m][n], 2 * static_cast<float>(m + 16 * n)) << m << ", " << n;
  }
}

// In one chain the 1 would be lost before 2^24 goes.
TEST(EmulatedTiles, EvenAndOddNumbersAreChainsOfTheirOwn) {
  EXPECT_EQ(Row({0x1p24F, 1, -0x1p24F, 0}, {1, 1, 1, 1}), 1);
  EXPECT_EQ(Row({0x1p24F, 0, 1, 0, -0x1p24F, 0}, {1, 1, 1, 1, 1, 1}), 0);
}

// The old sum comes last: 2^24 takes up 3, not 1 and 1 and 1.
TEST(EmulatedTiles, TheSumBeforeIsAddedToBothChainsTogether) {
  EXPECT_EQ(Row({1, 1, 1}, {1, 1, 1}, 0x1p24F), 0x1p24F + 4);  // 3 is halfway, to the even one
  EXPECT_EQ(Row({1, 1}, {1, 1}, 0x1p24F), 0x1p24F + 2);
}

TEST(EmulatedTiles, RoundAsFusedProductsDo) {
  std::vector<double> random = RandomArray(3000, 9);
  for (std::size_t i = 0; i + 2 < random.size(); i += 3) {
    const float a = ToFloat(ToBFloat16(static_cast<float>(random[i]))),
                b = ToFloat(ToBFloat16(static_cast<float>(random[i + 1])));
    for (const int exponent : {-20, -9, 0, 9, 20}) {
      const float sum = std::ldexp(static_cast<float>(random[i + 2]), exponent);
      ASSERT_EQ(FusedSum(a, b, sum), std::fma(a, b, sum)) << a << ", " << b << ", " << sum;
    }
  }
}

TEST(EmulatedTiles, WhatIsSubnormalIsZero) {
  constexpr float kMin = std::numeric_limits<float>::min();
  EXPECT_EQ(Row({kMin / 2}, {0x1p20F}), 0);      // an operand
  EXPECT_EQ(Row({0x1p-70F}, {0x1p-57F}), 0);     // a product
  EXPECT_EQ(Row({1}, {kMin}, -1.5F * kMin), 0);  // a sum
  EXPECT_EQ(Row({1}, {kMin}, kMin / 2), kMin);   // the sum before
  EXPECT_EQ(Row({0x1p-70F}, {0x1p-56F}), kMin);
  EXPECT_TRUE(std::signbit(FusedSum(-0x1p-70F, 0x1p-57F, 0)));
  // What rounds to 2^-126 as a number of 24 bits is not subnormal, what is one place less is.
  EXPECT_EQ(FusedSum(1 - 0x1p-8F, 0x1p-126F, 0x1p-126F), 0x1p-126F * (2 - 0x1p-8F));
  EXPECT_EQ(FusedSum(-0x1p-70F, 0x1p-82F, kMin), kMin);
  EXPECT_EQ(FusedSum(-0x1p-70F, 0x1p-80F, kMin), 0);
}

TEST(EmulatedTiles, WhatIsNotFiniteStays) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Row({infinity}, {1}), infinity);
  EXPECT_TRUE(std::isnan(Row({infinity, infinity}, {1, -1})));
  EXPECT_TRUE(std::isnan(Row({std::nanf("")}, {1})));
  EXPECT_EQ(Row({0x1p100F}, {0x1p100F}), infinity);
}

TEST(EmulatedTilesDeathTest, RefusesWhatAProcessorRefuses) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(EmulatedTiles().Zero(0), "not configured");
  EmulatedTiles tiles;
  Config config;
  tiles.LoadConfig(&config);
  EXPECT_DEATH(tiles.AddProducts(0, 1, 1), "not distinct");
  EXPECT_DEATH(tiles.AddProducts(0, 1, 3), "not configured");
  tiles.Release();
  EXPECT_DEATH(tiles.Zero(0), "not configured");
  config.palette = 2;
  EXPECT_DEATH(tiles.LoadConfig(&config), "palette");
}

/// The parts of a float as tile_product.h has them: each the nearest bfloat16 of what is left, ties
/// away from zero, the last one cut off.
std::array<float, 3> PartsOf(float x) {
  std::array<float, 3> parts;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) + (i < 2 ? 0x8000U : 0);
    parts[i] = std::bit_cast<float>(bits & 0xffff0000U);
    x -= parts[i];
  }
  return parts;
}

/// An element of a product of floats, step by step: 32 of k at a time, of which the first and the
/// second half are the two chains, and for each step the products of parts that matter.
float Element(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (std::size_t step = 0; step < a.size(); step += 32) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; i + j < 3; ++j) {
        float chains[2] = {};
        for (std::size_t k = step; k < std::min(step + 32, a.size()); ++k) {
          float& chain = chains[(k - step) / 16];
          chain = std::fma(PartsOf(a[k])[i], PartsOf(b[k])[j], chain);
        }
        sum += chains[0] + chains[1];
      }
    }
  }
  return sum;
}

std::vector<float> Floats(std::int64_t count, std::uint32_t seed) {
  std::vector<float> floats;
  for (const double value : RandomArray(count, seed)) floats.push_back(static_cast<float>(value));
  return floats;
}

TEST(EmulatedTiles, ProductsHaveTheBitsOfTheirDefinition) {
  constexpr std::int64_t kRows = 37, kColumns = 45, kInner = 75;
  const std::vector<float> a = Floats(kRows * kInner, 3), b = Floats(kInner * kColumns, 4);
  const auto tiles = [](std::int64_t lines) {
    const auto bytes = static_cast<std::size_t>(2 * TilesSize(lines, kInner, 3) + 63) / 64 * 64;
    return std::unique_ptr<std::uint16_t[], decltype(&std::free)>(
        static_cast<std::uint16_t*>(std::aligned_alloc(64, bytes)), &std::free);
  };
  const auto first = tiles(kRows), second = tiles(kColumns);
  PackFirstTiles<float>({a.data(), kInner, true, kRows, kInner}, first.get());
  PackSecondTiles<float>({b.data(), kColumns, false, kColumns, kInner}, second.get());
  std::vector<float> c(kRows * kColumns);
  TileProduct(
      {kRows, kColumns, kInner, first.get(), 3, second.get(), 3, c.data(), kColumns, false});
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      std::vector<float> of_row(a.begin() + row * kInner, a.begin() + (row + 1) * kInner),
          of_column;
      for (std::int64_t k = 0; k < kInner; ++k)
        of_column.push_back(b[static_cast<std::size_t>(k * kColumns + column)]);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(Element(of_row, of_column)),
                std::bit_cast<std::uint32_t>(c[static_cast<std::size_t>(row * kColumns + column)]))
          << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu::emulated_tiles_test
