// Copies between panels and matrices, vector by vector; transposes in squares of four.
#include "kernels/cpu/panel.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/piece_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/panel.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void WidenRows(const WidenArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* from = x.matrix + row * x.matrix_stride;
    float* to = x.panel + row * x.panel_stride;
    const float factor = x.factor;
    ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Mul(Load(from + i, part), Set(factor)), to + i, part);
    });
  }
}

/// How many rows before their use rows of a matrix are prefetched. They are too far apart for the
/// hardware prefetcher. A prefetch past the last one is harmless.
constexpr std::int64_t kRowsAhead = 4;

/// Row by row, so that the matrix is read sequentially.
template <class T>
void WidenRowsToPanels(const WidenArguments<T>& x, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = x.panel_stride;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const from = x.matrix + row * x.matrix_stride;
    for (std::int64_t column = 0; column < x.columns; column += width) {
      float* const to = x.panel + column * x.rows + row * width;
      ForVectors(0, std::min(width, x.columns - column), [=](std::int64_t i, auto part) HWY_ATTR {
        __builtin_prefetch(from + kRowsAhead * x.matrix_stride + column + i);
        Store(Load(from + column + i, part), to + i, part);
      });
    }
  }
}

template <class T>
void NarrowRows(const NarrowArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* from = x.panel + row * x.panel_stride;
    T* to = x.matrix + row * x.matrix_stride;
    const float factor = x.factor;
    ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Mul(Load(from + i, part), Set(factor)), to + i, part);
    });
  }
}

constexpr std::int64_t kSquare = 4;
constexpr std::int64_t kTransposedColumns = 16;  // at a time: a cache line of floats

#if HWY_TARGET != HWY_SCALAR
/// Transposes a square of `from` into `to`.
HWY_INLINE void TransposeSquare(const float* from, std::int64_t from_stride, float* to,
                                std::int64_t to_stride) {
  const hn::CappedTag<float, kSquare> four;
  const hn::RepartitionToWide<decltype(four)> two;
  const auto a = hn::LoadU(four, from), b = hn::LoadU(four, from + from_stride),
             c = hn::LoadU(four, from + 2 * from_stride),
             d = hn::LoadU(four, from + 3 * from_stride);
  const auto ab_low = hn::BitCast(two, hn::InterleaveLower(four, a, b)),
             ab_high = hn::BitCast(two, hn::InterleaveUpper(four, a, b)),
             cd_low = hn::BitCast(two, hn::InterleaveLower(four, c, d)),
             cd_high = hn::BitCast(two, hn::InterleaveUpper(four, c, d));
  hn::StoreU(hn::BitCast(four, hn::InterleaveLower(two, ab_low, cd_low)), four, to);
  hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(two, ab_low, cd_low)), four, to + to_stride);
  hn::StoreU(hn::BitCast(four, hn::InterleaveLower(two, ab_high, cd_high)), four,
             to + 2 * to_stride);
  hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(two, ab_high, cd_high)), four,
             to + 3 * to_stride);
}
#else
HWY_INLINE void TransposeSquare(const float* from, std::int64_t from_stride, float* to,
                                std::int64_t to_stride) {
  for (std::int64_t row = 0; row < kSquare; ++row) {
    for (std::int64_t i = 0; i < kSquare; ++i)
      to[i * to_stride + row] = from[row * from_stride + i];
  }
}
#endif

void TransposeFloats(std::int64_t rows, std::int64_t columns, const float* from,
                     std::int64_t from_stride, float* to, std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / kSquare * kSquare,
                     whole_columns = columns / kSquare * kSquare;
  for (std::int64_t row = 0; row < whole_rows; row += kSquare) {
    for (std::int64_t i = 0; i < whole_columns; i += kSquare) {
      TransposeSquare(from + row * from_stride + i, from_stride, to + i * to_stride + row,
                      to_stride);
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = row < whole_rows ? whole_columns : 0; i < columns; ++i)
      to[i * to_stride + row] = from[row * from_stride + i];
  }
}

/// Sixteen rows at a time along all columns, so that the matrix is read sequentially: the panel is
/// in a near cache, the matrix is not. 16-bit numbers are first widened a few rows at a time.
template <class T>
void TransposeRows(const WidenArguments<T>& x, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kRows = 16;
  float widened[kRows * kTransposedColumns];
  for (std::int64_t row = begin; row < end; row += kRows) {
    const std::int64_t rows = std::min(kRows, end - row);
    for (std::int64_t column = 0; column < x.columns; column += kTransposedColumns) {
      const std::int64_t columns = std::min(kTransposedColumns, x.columns - column);
      const T* from = x.matrix + row * x.matrix_stride + column;
      float* to = x.panel + column * x.panel_stride + row;
      for (std::int64_t i = kRows; i < 2 * kRows; ++i)
        __builtin_prefetch(from + i * x.matrix_stride);
      if constexpr (std::is_same_v<T, float>) {
        TransposeFloats(rows, columns, from, x.matrix_stride, to, x.panel_stride);
      } else {
        WidenRows<T>({.columns = columns,
                      .matrix = from,
                      .matrix_stride = x.matrix_stride,
                      .panel = widened,
                      .panel_stride = kTransposedColumns},
                     0, rows);
        TransposeFloats(rows, columns, widened, kTransposedColumns, to, x.panel_stride);
      }
    }
  }
}

PieceFunctions<WidenArguments> WidenFunctions() {
  return {WidenRows<float>, WidenRows<BFloat16>, WidenRows<Float16>};
}
PieceFunctions<WidenArguments> ToPanelsFunctions() {
  return {WidenRowsToPanels<float>, WidenRowsToPanels<BFloat16>, WidenRowsToPanels<Float16>};
}
PieceFunctions<WidenArguments> TransposeFunctions() {
  return {TransposeRows<float>, TransposeRows<BFloat16>, TransposeRows<Float16>};
}
PieceFunctions<NarrowArguments> NarrowFunctions() {
  return {NarrowRows<float>, NarrowRows<BFloat16>, NarrowRows<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(WidenFunctions);
HWY_EXPORT(ToPanelsFunctions);
HWY_EXPORT(TransposeFunctions);
HWY_EXPORT(NarrowFunctions);
}  // namespace

template <class T>
void Widen(const WidenArguments<T>& x) {
  HWY_DYNAMIC_DISPATCH(WidenFunctions)().template On<T>()(x, 0, x.rows);
}

template <class T>
void WidenToPanels(const WidenArguments<T>& x) {
  HWY_DYNAMIC_DISPATCH(ToPanelsFunctions)().template On<T>()(x, 0, x.rows);
}

template <class T>
void WidenTransposed(const WidenArguments<T>& x) {
  HWY_DYNAMIC_DISPATCH(TransposeFunctions)().template On<T>()(x, 0, x.rows);
}

template <class T>
void Narrow(const NarrowArguments<T>& x) {
  HWY_DYNAMIC_DISPATCH(NarrowFunctions)().template On<T>()(x, 0, x.rows);
}

template void Widen<float>(const WidenArguments<float>&);
template void Widen<BFloat16>(const WidenArguments<BFloat16>&);
template void Widen<Float16>(const WidenArguments<Float16>&);
template void WidenToPanels<float>(const WidenArguments<float>&);
template void WidenToPanels<BFloat16>(const WidenArguments<BFloat16>&);
template void WidenToPanels<Float16>(const WidenArguments<Float16>&);
template void WidenTransposed<float>(const WidenArguments<float>&);
template void WidenTransposed<BFloat16>(const WidenArguments<BFloat16>&);
template void WidenTransposed<Float16>(const WidenArguments<Float16>&);
template void Narrow<float>(const NarrowArguments<float>&);
template void Narrow<BFloat16>(const NarrowArguments<BFloat16>&);
template void Narrow<Float16>(const NarrowArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
