// Rotary position embedding from a table of cosines and sines.
#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void RotateRows(const RopePass<T>& pass, std::int64_t begin, std::int64_t end) {
  const RopeArguments<T>& x = pass.x;
  const std::int64_t half = x.head_size / 2;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t angle = row % x.sequence * half;
    const float* cosine = pass.table.cosine.data() + angle;
    const float* sine = pass.table.sine.data() + angle;
    for (std::int64_t head = 0; head < x.rotated_heads; ++head) {
      T* low = x.values + (row * x.heads + head) * x.head_size;
      T* high = low + half;
      ForVectors(0, half, [=, inverse = x.inverse](std::int64_t i, auto part) HWY_ATTR {
        const Floats a = Load(low + i, part), b = Load(high + i, part);
        const Floats c = Load(cosine + i, part), s = Load(sine + i, part);
        const Floats turn = inverse ? hn::Neg(s) : s;
        Store(hn::NegMulAdd(b, turn, hn::Mul(a, c)), low + i, part);
        Store(hn::MulAdd(a, turn, hn::Mul(b, c)), high + i, part);
      });
    }
  }
}

PieceFunctions<RopePass> RopePieces() {
  return {RotateRows<float>, RotateRows<BFloat16>, RotateRows<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {

HWY_EXPORT(RopePieces);

template <class T>
void Fill(RopeTable& table, const RopeArguments<T>& x) {
  if (table.sequence == x.sequence && table.head_size == x.head_size && table.base == x.base &&
      table.scaling == x.scaling) {
    return;
  }
  const std::int64_t half = x.head_size / 2;
  table.cosine.resize(static_cast<std::size_t>(x.sequence * half));
  table.sine.resize(table.cosine.size());
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = RopeRate(x.base, x.scaling, x.head_size, i);
    for (std::int64_t position = 0; position < x.sequence; ++position) {
      const auto at = static_cast<std::size_t>(position * half + i);
      const double angle = static_cast<double>(position) * rate;
      table.cosine[at] = static_cast<float>(std::cos(angle));
      table.sine[at] = static_cast<float>(std::sin(angle));
    }
  }
  table.sequence = x.sequence;
  table.head_size = x.head_size;
  table.base = x.base;
  table.scaling = x.scaling;
}

}  // namespace

template <class T>
void CpuDevice<T>::Rope(const RopeArguments<T>& x) {
  Fill(rope_table_, x);
  const RopePass<T> pass{x, rope_table_};
  const auto rows = HWY_DYNAMIC_DISPATCH(RopePieces)().template On<T>();
  pool_.ForPieces(x.rows, RowsPerPiece(x.rotated_heads * x.head_size),
                  [&](std::int64_t begin, std::int64_t end) { rows(pass, begin, end); });
}

template void CpuDevice<float>::Rope(const RopeArguments<float>&);
template void CpuDevice<BFloat16>::Rope(const RopeArguments<BFloat16>&);
template void CpuDevice<Float16>::Rope(const RopeArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
