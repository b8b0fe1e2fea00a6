// Products of numbers in several parts against float64: on a matrix unit alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/tile_product.h"
#include "tests/unit/kernels/tile_product_case.h"

namespace adaptive_train::kernels::cpu::tile_parts_test {
namespace {

class TilePartsTest : public TileProductTest {};

TEST_F(TilePartsTest, OfFloats) { ExpectAllSums<float>(); }
TEST_F(TilePartsTest, OfFloat16) { ExpectAllSums<Float16>(); }
// What leaves float32 its meaning: no product loses more than a chain of fused ones does.
TEST_F(TilePartsTest, ErrsLessThanAChainOfFloats) {
  const TileCase<float> a_case{64, 64, 1024};
  const std::vector<float> c = a_case.Product();
  double of_tiles = 0, of_chain = 0;
  for (std::int64_t i = 0; i < a_case.rows; ++i) {
    for (std::int64_t j = 0; j < a_case.columns; ++j) {
      double sum = 0;
      float chain = 0;
      for (std::int64_t k = 0; k < a_case.inner; ++k) {
        sum += static_cast<double>(a_case.A(i, k)) * static_cast<double>(a_case.B(k, j));
        chain = std::fma(a_case.A(i, k), a_case.B(k, j), chain);
      }
      of_tiles += std::pow(static_cast<double>(c[static_cast<std::size_t>(i * 64 + j)]) - sum, 2);
      of_chain += std::pow(static_cast<double>(chain) - sum, 2);
    }
  }
  EXPECT_LT(of_tiles, of_chain);
}

// Every bit of a float is in one of its parts.
TEST_F(TilePartsTest, TimesOneIsEveryFloat) {
  std::vector<float> values;
  for (const double value : RandomArray(512, 5)) {
    for (const int exponent : {-80, -20, 0, 20, 120})
      values.push_back(std::ldexp(static_cast<float>(value), exponent));
  }
  values.push_back(std::nextafter(1.0F, 2.0F));
  values.push_back(-std::nextafter(2.0F, 1.0F));
  const auto count = static_cast<std::int64_t>(values.size());
  const TileCase<float> a_case{.rows = count, .columns = 1, .inner = 1, .a = values, .b = {1}};
  EXPECT_EQ(values, a_case.Product());
}

TEST_F(TilePartsTest, DoesNotDependOnPieces) { ExpectTheSameSumsInPieces<float>(); }

TEST_F(TilePartsTest, PassesOnWhatIsNotFinite) { ExpectBadRowsAlone<float>(); }

}  // namespace
}  // namespace adaptive_train::kernels::cpu::tile_parts_test
