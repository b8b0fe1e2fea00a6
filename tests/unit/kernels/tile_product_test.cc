// Products of bfloat16 numbers against float64, on all that multiplies tiles.
#include "kernels/cpu/tile_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/kernels/tile_product_case.h"

namespace adaptive_train::kernels::cpu::tile_product_test {
namespace {

TEST_F(TileProductTest, OfBFloat16) { ExpectAllSums<BFloat16>(); }

TEST_F(TileProductTest, DoesNotDependOnPieces) { ExpectTheSameSumsInPieces<BFloat16>(); }

/// The bits of floats as numbers of bfloat16: times one.
std::vector<float> PackedInOnePart(const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const BFloat16 one = Rounded<BFloat16>(1.0F);
  const Tiles a = NewTiles(count, 1, 1), b = NewTiles(1, 1, 1);
  PackFirstTiles<float>({values.data(), 1, true, count, 1, 1}, a.get());
  PackSecondTiles<BFloat16>({&one, 1, false, 1, 1}, b.get());
  std::vector<float> c(values.size());
  TileProduct({count, 1, 1, a.get(), 1, b.get(), 1, c.data(), 1, false});
  return c;
}

TEST_F(TileProductTest, FloatsInOnePartAreRounded) {
  std::vector<float> values{0, 1, -1, 1 + 0x1p-8F, 1 + 0x1.8p-7F, 1 + 0x1p-8F + 0x1p-20F, 0x1p127F};
  for (const double value : RandomArray(512, 5)) values.push_back(static_cast<float>(value));
  std::vector<float> expected;
  for (const float value : values) expected.push_back(ToFloat(Rounded<BFloat16>(value)));
  EXPECT_EQ(expected, PackedInOnePart(values));
}

TEST_F(TileProductTest, PassesOnWhatIsNotFinite) {
  ExpectBadRowsAlone<BFloat16>();
  for (const float bad : kNotFinite) EXPECT_FALSE(std::isfinite(PackedInOnePart({bad})[0])) << bad;
}

TEST_F(TileProductTest, TouchesNothingPastItsColumns) {
  const TileCase<BFloat16> a_case{5, 7, 3};
  const Tiles a = NewTiles(5, 3, 1), b = NewTiles(7, 3, 1);
  PackFirstTiles<BFloat16>({a_case.a.data(), 3, true, 5, 3}, a.get());
  PackSecondTiles<BFloat16>({a_case.b.data(), 7, false, 7, 3}, b.get());
  std::vector<float> c(6 * 10, 42);
  TileProduct({5, 7, 3, a.get(), 1, b.get(), 1, c.data(), 10, false});
  for (std::size_t i = 0; i < c.size(); ++i)
    EXPECT_EQ(i % 10 >= 7 || i / 10 >= 5, c[i] == 42) << i;  // NOLINT: exact
}

TEST_F(TileProductTest, TakesTheFirstRowsOfADeeperSecondOperand) {
  const TileCase<BFloat16> whole{40, 70, 96};
  TileCase<BFloat16> part{40, 70, 64};
  for (std::int64_t i = 0; i < 40; ++i)
    std::copy_n(&whole.A(i, 0), 64, &part.a[static_cast<std::size_t>(i * 64)]);
  std::copy_n(whole.b.begin(), 64 * 70, part.b.begin());
  const Tiles a = NewTiles(40, 64, 1), b = NewTiles(70, 96, 1);
  PackFirstTiles<BFloat16>({&whole.A(0, 0), 96, true, 40, 64}, a.get());
  PackSecondTiles<BFloat16>({&whole.B(0, 0), 70, false, 70, 96}, b.get());
  std::vector<float> c(40 * 70);
  TileProduct({40, 70, 64, a.get(), 1, b.get(), 1, c.data(), 70, false, 96});
  EXPECT_EQ(part.Product(), c);
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu::tile_product_test
