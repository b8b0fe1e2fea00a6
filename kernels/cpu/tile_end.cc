// Applies epilogues vector by vector over the rows of a tile.
#include "kernels/cpu/tile_end.h"

#include <algorithm>

#include "kernels/cpu/piece_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_end.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

/// For the next row, which is too far away for the hardware prefetcher. A prefetch past the last one
/// does not fault.
template <class T>
HWY_INLINE void Prefetch(const T* matrix, std::int64_t at) {
  if (matrix != nullptr) __builtin_prefetch(matrix + at);
}

template <class T, GeluForm kForm>
void FinishAs(const TileEnd<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* tile = x.tile + row * x.tile_stride;
    const std::int64_t at = row * x.stride;
    ForVectors(0, x.columns, [&](std::int64_t i, auto part) HWY_ATTR {
      const std::int64_t next = at + x.stride + i;
      Prefetch(x.residual, next);
      Prefetch(x.gelu_input, next);
      Prefetch(x.c, next);
      Prefetch(x.activated, next);
      Floats c = Load(tile + i, part);
      if (x.bias != nullptr) c = hn::Add(c, Load(x.bias + i, part));
      if (x.residual != nullptr) c = hn::Add(c, Load(x.residual + at + i, part));
      if constexpr (kForm != GeluForm::kNone) {
        if (x.activated == nullptr)
          c = hn::Mul(c, GeluDerivative<kForm>(Load(x.gelu_input + at + i, part)));
      }
      Store(c, x.c + at + i, part);
      if constexpr (kForm != GeluForm::kNone) {
        // Computed from the rounded values as stored, since recomputation starts from those.
        if (x.activated != nullptr)
          Store(Gelu<kForm>(Load(x.c + at + i, part)), x.activated + at + i, part);
      }
    });
  }
}

template <class T>
void FinishRows(const TileEnd<T>& x, std::int64_t begin, std::int64_t end) {
  switch (x.gelu) {
    case GeluForm::kNone:
      return FinishAs<T, GeluForm::kNone>(x, begin, end);
    case GeluForm::kTanh:
      return FinishAs<T, GeluForm::kTanh>(x, begin, end);
    case GeluForm::kErf:
      return FinishAs<T, GeluForm::kErf>(x, begin, end);
  }
}

/// So few columns at a time that their sums stay in the first-level cache.
template <class T>
void AddColumnsOf(const ColumnSums<T>& x, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kColumns = 384;
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t columns = std::min(kColumns, end - first);
    float sums[kColumns] = {};
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const T* values = x.values + row * x.stride + first;
      ForVectors(0, columns, [&](std::int64_t i, auto part) HWY_ATTR {
        Store(hn::Add(Load(sums + i, part), Load(values + i, part)), sums + i, part);
      });
    }
    for (std::int64_t i = 0; i < columns; ++i) x.sums[first + i] += sums[i];
  }
}

PieceFunctions<ColumnSums> ColumnFunctions() {
  return {AddColumnsOf<float>, AddColumnsOf<BFloat16>, AddColumnsOf<Float16>};
}
PieceFunctions<TileEnd> FinishFunctions() {
  return {FinishRows<float>, FinishRows<BFloat16>, FinishRows<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(FinishFunctions);
HWY_EXPORT(ColumnFunctions);
}  // namespace

template <class T>
void FinishTile(const TileEnd<T>& x) {
  HWY_DYNAMIC_DISPATCH(FinishFunctions)().template On<T>()(x, 0, x.rows);
}

template <class T>
void AddColumns(const ColumnSums<T>& x) {
  HWY_DYNAMIC_DISPATCH(ColumnFunctions)().template On<T>()(x, 0, x.columns);
}

template void FinishTile<float>(const TileEnd<float>&);
template void FinishTile<BFloat16>(const TileEnd<BFloat16>&);
template void FinishTile<Float16>(const TileEnd<Float16>&);
template void AddColumns<float>(const ColumnSums<float>&);
template void AddColumns<BFloat16>(const ColumnSums<BFloat16>&);
template void AddColumns<Float16>(const ColumnSums<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
