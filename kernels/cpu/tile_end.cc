// Vector by vector over the tile's rows.
#include "kernels/cpu/tile_end.h"

#include "kernels/cpu/piece_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_end.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T, GeluForm kForm>
void FinishAs(const TileEnd<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* tile = x.tile + row * x.tile_stride;
    const std::int64_t at = row * x.stride;
    ForVectors(0, x.columns, [&](std::int64_t i, auto part) HWY_ATTR {
      Floats c = Load(tile + i, part);
      if (x.bias != nullptr) c = hn::Add(c, Load(x.bias + i, part));
      if (x.residual != nullptr) c = hn::Add(c, Load(x.residual + at + i, part));
      if constexpr (kForm != GeluForm::kNone) {
        if (x.activated == nullptr)
          c = hn::Mul(c, GeluDerivative<kForm>(Load(x.gelu_input + at + i, part)));
      }
      Store(c, x.c + at + i, part);
      if constexpr (kForm != GeluForm::kNone) {
        // Of what is stored, rounded: recomputation starts from there.
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

void AddColumnsOf(const ColumnSums& x, std::int64_t begin, std::int64_t end) {
  float sums[kColumnsPerPiece] = {};
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const float* values = x.values + row * x.stride + begin;
    ForVectors(0, end - begin, [&](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Add(Load(sums + i, part), Load(values + i, part)), sums + i, part);
    });
  }
  for (std::int64_t i = begin; i < end; ++i) x.sums[i] += sums[i - begin];
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
HWY_EXPORT(AddColumnsOf);
}  // namespace

template <class T>
void FinishTile(const TileEnd<T>& x) {
  HWY_DYNAMIC_DISPATCH(FinishFunctions)().template On<T>()(x, 0, x.rows);
}

void AddColumns(const ColumnSums& x, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddColumnsOf)(x, begin, end);
}

template void FinishTile<float>(const TileEnd<float>&);
template void FinishTile<BFloat16>(const TileEnd<BFloat16>&);
template void FinishTile<Float16>(const TileEnd<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
