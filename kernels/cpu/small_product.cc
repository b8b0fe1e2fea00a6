// A block of sums in registers, six rows by four vectors where there are registers for it.
#include "kernels/cpu/small_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/small_product.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kBlockRows = 6;
// Lower targets have more. The sums stand in an array, so vectors must have a size that the
// compiler knows.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr int kBlockVectors = 4;  // 24 sums, 4 of b and one of a: 32 registers
#else
constexpr int kBlockVectors = 2;  // 12 sums, 2 of b and one of a: 16 registers
#endif

template <int kRows, int kVectors>
void Block(const SmallProductArguments& x, std::int64_t row, std::int64_t column) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  const float* a = x.a + row * x.a_row;
  const float* b = x.b + column;
  float* c = x.c + row * x.c_stride + column;
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = x.accumulate ? Load(c + i * x.c_stride + v * lanes) : Zero();
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
    for (int v = 0; v < kVectors; ++v) Store(sums[i][v], c + i * x.c_stride + v * lanes);
  }
}

/// The rows that are left below whole blocks.
template <int kRows, int kVectors>
void LastRows(const SmallProductArguments& x, std::int64_t row, std::int64_t column) {
  if constexpr (kRows > 0) {
    if (x.rows - row == kRows) return Block<kRows, kVectors>(x, row, column);
    LastRows<kRows - 1, kVectors>(x, row, column);
  }
}

template <int kVectors>
void Column(const SmallProductArguments& x, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + kBlockRows <= x.rows; row += kBlockRows) Block<kBlockRows, kVectors>(x, row, column);
  LastRows<kBlockRows - 1, kVectors>(x, row, column);
}

void Product(const SmallProductArguments& x) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  std::int64_t column = 0;
  for (; column + kBlockVectors * lanes <= x.columns; column += kBlockVectors * lanes)
    Column<kBlockVectors>(x, column);
  for (; column < x.columns; column += lanes) Column<1>(x, column);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(Product);
}  // namespace

void SmallProduct(const SmallProductArguments& x) { HWY_DYNAMIC_DISPATCH(Product)(x); }

}  // namespace adaptive_train::kernels::cpu
#endif
