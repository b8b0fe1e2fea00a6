// Products of tiles, and what tests say of them: by what the processor has, and by emulated
// instructions everywhere.
#pragma once

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

namespace adaptive_train::kernels::cpu {

constexpr TileUnit kTestedUnit = TileUnit::ADAPTIVE_TRAIN_TESTED_UNIT;

using Tiles = std::unique_ptr<std::uint16_t[], decltype(&std::free)>;

inline Tiles NewTiles(std::int64_t lines, std::int64_t depth, int parts) {
  const auto bytes = static_cast<std::size_t>(2 * TilesSize(lines, depth, parts));
  return {static_cast<std::uint16_t*>(std::aligned_alloc(64, bytes + 64)), &std::free};
}

class TileProductTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(kTestedUnit, TileUnitHere()) << "the kernel does not grant what the processor has";
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
struct TileCase {
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
    constexpr int kParts = kTileParts<T>;
    const Tiles first = NewTiles(some_rows, depth, kParts),
                second = NewTiles(columns, depth, kParts);
    PackFirstTiles<T>({&A(row, k), transpose_a ? rows : inner, !transpose_a, some_rows, depth},
                      first.get());
    PackSecondTiles<T>({&B(k, 0), transpose_b ? inner : columns, transpose_b, columns, depth},
                       second.get());
    TileProduct({some_rows, columns, depth, first.get(), kParts, second.get(), kParts,
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
        const TileCase<T> a_case{rows, columns, inner, transpose_a, transpose_b};
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

template <class T>
void ExpectTheSameSumsInPieces() {
  const TileCase<T> whole{150, 50, 400};
  const std::vector<float> expected = whole.Product();
  std::vector<float> pieces(expected.size());
  for (std::int64_t row = 0; row < 150; row += 70) {
    for (std::int64_t k = 0; k < 400; k += 96)
      whole.AddPiece(row, std::min<std::int64_t>(70, 150 - row), k,
                     std::min<std::int64_t>(96, 400 - k), pieces);
  }
  EXPECT_EQ(expected, pieces);
}

/// None is finite as a bfloat16 number: the last one rounds to infinity.
inline const std::vector<float> kNotFinite = {
    std::numeric_limits<float>::infinity(), -std::nanf(""), std::bit_cast<float>(0x7fffffffu),
    std::bit_cast<float>(0xff800001u), std::numeric_limits<float>::max()};

/// A step that is not finite must be seen: one bad number spoils its row of sums, and no other.
template <class T>
void ExpectBadRowsAlone() {
  for (const float bad : kNotFinite) {
    TileCase<T> a_case{40, 40, 40};
    a_case.a[5 * 40 + 7] = Rounded<T>(bad);
    const std::vector<float> c = a_case.Product();
    for (std::size_t i = 0; i < c.size(); ++i)
      ASSERT_EQ(i / 40 != 5, std::isfinite(c[i])) << bad << " at " << i;
  }
}

}  // namespace adaptive_train::kernels::cpu
