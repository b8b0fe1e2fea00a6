// Products by register blocking (Goto and van de Geijn, 2008). A block of sums stays in registers,
// six rows by four vectors if there are enough; a piece of b stays in the first-level cache.
#include "kernels/cpu/product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/product.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kBlockRows = 6;
// Lower target numbers have more registers. The sums are an array, so vectors must have a size that
// the compiler knows.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr int kBlockVectors = 4;  // 24 sums, 4 of b and one of a: 32 registers
#else
constexpr int kBlockVectors = 2;  // 12 sums, 2 of b and one of a: 16 registers
#endif
/// The size of a piece of b. It takes two thirds of a 48 KiB first-level cache with 64-byte
/// vectors, and three quarters of a 32 KiB cache with 32-byte vectors.
constexpr std::int64_t kPieceBytes = 32768, kMostRows = 384;

/// Computes kVectors vectors of c, or a single partial vector if Part is First.
template <int kRows, int kVectors, class Part>
void Block(const ProductArguments& x, std::int64_t row, std::int64_t column, Part part) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  const float* a = x.a + row * x.a_row;
  const float* b = x.b + column;
  float* c = x.c + row * x.c_stride + column;
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = x.accumulate ? Load(c + i * x.c_stride + v * lanes, part) : Zero();
  }
  for (std::int64_t k = 0; k < x.inner; ++k) {
    Floats of_b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) of_b[v] = Load(b + k * x.b_stride + v * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Floats of_a = Set(a[i * x.a_row + k * x.a_inner]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(of_a, of_b[v], sums[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums[i][v], c + i * x.c_stride + v * lanes, part);
  }
}

/// Computes the rows below the last whole block.
template <int kRows, int kVectors, class Part>
void LastRows(const ProductArguments& x, std::int64_t row, std::int64_t column, Part part) {
  if constexpr (kRows > 0) {
    if (x.rows - row == kRows) return Block<kRows, kVectors>(x, row, column, part);
    LastRows<kRows - 1, kVectors>(x, row, column, part);
  }
}

template <int kVectors, class Part>
void Column(const ProductArguments& x, std::int64_t column, Part part) {
  std::int64_t row = 0;
  for (; row + kBlockRows <= x.rows; row += kBlockRows)
    Block<kBlockRows, kVectors>(x, row, column, part);
  LastRows<kBlockRows - 1, kVectors>(x, row, column, part);
}

/// Computes the vectors to the right of the last whole block.
template <int kVectors>
void LastColumns(const ProductArguments& x, std::int64_t column) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  if constexpr (kVectors == 0) {
    if (column < x.columns)
      Column<1>(x, column, First{static_cast<std::size_t>(x.columns - column)});
  } else {
    if (column + kVectors * lanes <= x.columns) {
      Column<kVectors>(x, column, Whole());
      column += kVectors * lanes;
    }
    LastColumns<kVectors - 1>(x, column);
  }
}

void MultiplyPiece(const ProductArguments& x) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  std::int64_t column = 0;
  for (; column + kBlockVectors * lanes <= x.columns; column += kBlockVectors * lanes)
    Column<kBlockVectors>(x, column, Whole());
  LastColumns<kBlockVectors - 1>(x, column);
}

std::int64_t BlockColumns() { return kBlockVectors * static_cast<std::int64_t>(Lanes()); }

void Multiply(const ProductArguments& x) {
  const std::int64_t rows = std::min(
      kMostRows, kPieceBytes / (BlockColumns() * static_cast<std::int64_t>(sizeof(float))));
  ProductArguments piece = x;
  std::int64_t k = 0;
  do {
    piece.inner = std::min(rows, x.inner - k);
    piece.a = x.a + k * x.a_inner;
    piece.b = x.b + k * x.b_stride;
    MultiplyPiece(piece);
    piece.accumulate = true;
    k += rows;
  } while (k < x.inner);
}

const char* Instructions() {
  switch (HWY_TARGET) {
    case HWY_AVX3:
      return "AVX-512";
    case HWY_AVX2:
      return "AVX2";
    case HWY_SSE4:
      return "SSE4";
    default:
      return hwy::TargetName(HWY_TARGET);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(Multiply);
HWY_EXPORT(BlockColumns);
HWY_EXPORT(Instructions);
}  // namespace

void Product(const ProductArguments& x) { HWY_DYNAMIC_DISPATCH(Multiply)(x); }
std::int64_t ProductBlockColumns() { return HWY_DYNAMIC_DISPATCH(BlockColumns)(); }
const char* ProductInstructions() { return HWY_DYNAMIC_DISPATCH(Instructions)(); }

}  // namespace adaptive_train::kernels::cpu
#endif
