// Products on the matrix unit against float64: on the unit itself where the processor has one, and
// on emulated tiles everywhere.
#include "kernels/cpu/amx_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "tests/unit/kernels/arrays.h"

namespace adaptive_train::kernels::cpu::amx_product_test {
namespace {

using Tiles = std::unique_ptr<std::uint16_t[], decltype(&std::free)>;

Tiles NewTiles(std::int64_t lines, std::int64_t depth, int parts) {
  const auto bytes = static_cast<std::size_t>(2 * AmxPackedSize(lines, depth, parts));
  return {static_cast<std::uint16_t*>(std::aligned_alloc(64, bytes + 64)), &std::free};
}

class AmxProductTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(AmxAvailable()) << "the kernel does not grant the processor's matrix unit";
  }
};

template <class T>
std::vector<T> Numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<T> numbers;
  for (const double value : RandomArray(count, seed))
    numbers.push_back(Rounded<T>(static_cast<float>(value)));
  return numbers;
}

/// A product of [rows, inner] and [inner, columns]; matrices may lie transposed.
template <class T>
struct Case {
  std::int64_t rows, columns, inner;
  bool transpose_a = false, transpose_b = false;
  std::vector<T> a = Numbers<T>(rows * inner, 1), b = Numbers<T>(inner * columns, 2);

  const T& A(std::int64_t i, std::int64_t k) const {
    return a[static_cast<std::size_t>(transpose_a ? k * rows + i : i * inner + k)];
  }
  const T& B(std::int64_t k, std::int64_t j) const {
    return b[static_cast<std::size_t>(transpose_b ? j * inner + k : k * columns + j)];
  }

  /// Adds rows [row, row + some_rows) of the product of k in [k, k + depth) to c.
  void AddPiece(std::int64_t row, std::int64_t some_rows, std::int64_t k, std::int64_t depth,
                std::vector<float>& c) const {
    constexpr int kParts = kAmxParts<T>;
    const Tiles first = NewTiles(some_rows, depth, kParts),
                second = NewTiles(columns, depth, kParts);
    AmxPackFirst<T>({&A(row, k), transpose_a ? rows : inner, !transpose_a, some_rows, depth},
                    first.get());
    AmxPackSecond<T>({&B(k, 0), transpose_b ? inner : columns, transpose_b, columns, depth},
                     second.get());
    AmxProduct({some_rows, columns, depth, first.get(), kParts, second.get(), kParts,
                c.data() + row * columns, columns, true});
  }
  std::vector<float> Product() const {
    std::vector<float> c(static_cast<std::size_t>(rows * columns));
    AddPiece(0, rows, 0, inner, c);
    return c;
  }
};

template <class T>
void ExpectAllSums() {
  for (const auto& [rows, columns, inner] : {std::array<std::int64_t, 3>{1, 1, 1},
                                             {2, 3, 5},
                                             {16, 16, 32},
                                             {17, 33, 31},
                                             {64, 32, 96},
                                             {37, 101, 130}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        const Case<T> a_case{rows, columns, inner, transpose_a, transpose_b};
        const std::vector<float> c = a_case.Product();
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            double sum = 0, size = 0;
            for (std::int64_t k = 0; k < inner; ++k) {
              const double product = static_cast<double>(ToFloat(a_case.A(i, k))) *
                                     static_cast<double>(ToFloat(a_case.B(k, j)));
              sum += product;
              size += std::abs(product);
            }
            ASSERT_NEAR(sum, c[static_cast<std::size_t>(i * columns + j)], 0x1p-22 * size)
                << rows << " x " << columns << " x " << inner << " at " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(AmxProductTest, OfFloats) { ExpectAllSums<float>(); }
TEST_F(AmxProductTest, OfFloat16) { ExpectAllSums<Float16>(); }
TEST_F(AmxProductTest, OfBFloat16) { ExpectAllSums<BFloat16>(); }

// What leaves float32 its meaning: no product loses more than a chain of fused ones does.
TEST_F(AmxProductTest, ErrsLessThanAChainOfFloats) {
  const Case<float> a_case{64, 64, 1024};
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
TEST_F(AmxProductTest, TimesOneIsEveryFloat) {
  std::vector<float> values;
  for (const double value : RandomArray(512, 5)) {
    for (const int exponent : {-80, -20, 0, 20, 120})
      values.push_back(std::ldexp(static_cast<float>(value), exponent));
  }
  values.push_back(std::nextafter(1.0F, 2.0F));
  values.push_back(-std::nextafter(2.0F, 1.0F));
  const auto count = static_cast<std::int64_t>(values.size());
  const Case<float> a_case{.rows = count, .columns = 1, .inner = 1, .a = values, .b = {1}};
  EXPECT_EQ(values, a_case.Product());
}

TEST_F(AmxProductTest, DoesNotDependOnPieces) {
  const Case<float> whole{150, 50, 400};
  const std::vector<float> expected = whole.Product();
  std::vector<float> pieces(expected.size());
  for (std::int64_t row = 0; row < 150; row += 70) {
    for (std::int64_t k = 0; k < 400; k += 96)
      whole.AddPiece(row, std::min<std::int64_t>(70, 150 - row), k,
                     std::min<std::int64_t>(96, 400 - k), pieces);
  }
  EXPECT_EQ(expected, pieces);
}

// A step that is not finite must be seen.
TEST_F(AmxProductTest, PassesOnWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::nanf(""), std::bit_cast<float>(0x7fffffffu),
        std::bit_cast<float>(0xff800001u), std::numeric_limits<float>::max()}) {
    Case<float> a_case{40, 40, 40};
    a_case.a[5 * 40 + 7] = bad;
    const std::vector<float> c = a_case.Product();
    for (std::size_t i = 0; i < c.size(); ++i)
      ASSERT_EQ(i / 40 != 5, std::isfinite(c[i])) << bad << " at " << i;
  }
}

TEST_F(AmxProductTest, TouchesNothingPastItsColumns) {
  const Case<float> a_case{5, 7, 3};
  const Tiles a = NewTiles(5, 3, 3), b = NewTiles(7, 3, 3);
  AmxPackFirst<float>({a_case.a.data(), 3, true, 5, 3}, a.get());
  AmxPackSecond<float>({a_case.b.data(), 7, false, 7, 3}, b.get());
  std::vector<float> c(6 * 10, 42);
  AmxProduct({5, 7, 3, a.get(), 3, b.get(), 3, c.data(), 10, false});
  for (std::size_t i = 0; i < c.size(); ++i)
    EXPECT_EQ(i % 10 >= 7 || i / 10 >= 5, c[i] == 42) << i;  // NOLINT: exact
}

TEST_F(AmxProductTest, TakesTheFirstRowsOfADeeperSecondOperand) {
  const Case<BFloat16> whole{40, 70, 96};
  Case<BFloat16> part{40, 70, 64};
  for (std::int64_t i = 0; i < 40; ++i)
    std::copy_n(&whole.A(i, 0), 64, &part.a[static_cast<std::size_t>(i * 64)]);
  std::copy_n(whole.b.begin(), 64 * 70, part.b.begin());
  const Tiles a = NewTiles(40, 64, 1), b = NewTiles(70, 96, 1);
  AmxPackFirst<BFloat16>({&whole.A(0, 0), 96, true, 40, 64}, a.get());
  AmxPackSecond<BFloat16>({&whole.B(0, 0), 70, false, 70, 96}, b.get());
  std::vector<float> c(40 * 70);
  AmxProduct({40, 70, 64, a.get(), 1, b.get(), 1, c.data(), 70, false, 96});
  EXPECT_EQ(part.Product(), c);
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu::amx_product_test
