// SwiGLU in one pass over memory.
#include "kernels/swiglu.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void ForwardRows(const SwigluArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = x.input + row * 2 * x.columns;
    const T* up = gate + x.columns;
    T* output = x.output + row * x.columns;
    ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Mul(Silu(Load(gate + i, part)), Load(up + i, part)), output + i, part);
    });
  }
}

// silu(g) = g s with s = sigmoid(g), silu'(g) = s (1 + g (1 - s)).
template <class T>
void BackwardRows(const SwigluBackwardArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * 2 * x.columns, columns = x.columns;
    const T* input = x.input + at;
    const T* d_output = x.d_output + row * columns;
    T* d_input = x.d_input + at;
    ForVectors(0, columns, [=](std::int64_t i, auto part) HWY_ATTR {
      const Floats gate = Load(input + i, part), up = Load(input + columns + i, part);
      const Floats d = Load(d_output + i, part), s = Sigmoid(gate);
      const Floats slope = hn::Mul(s, hn::MulAdd(gate, hn::Sub(Set(1), s), Set(1)));
      Store(hn::Mul(hn::Mul(d, up), slope), d_input + i, part);
      Store(hn::Mul(d, hn::Mul(gate, s)), d_input + columns + i, part);
    });
  }
}

PieceFunctions<SwigluArguments> SwigluForward() {
  return {ForwardRows<float>, ForwardRows<BFloat16>, ForwardRows<Float16>};
}
PieceFunctions<SwigluBackwardArguments> SwigluBackward() {
  return {BackwardRows<float>, BackwardRows<BFloat16>, BackwardRows<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);
}  // namespace

template <class T>
void CpuDevice<T>::Swiglu(const SwigluArguments<T>& x) {
  const auto rows = HWY_DYNAMIC_DISPATCH(SwigluForward)().template On<T>();
  pool_.ForPieces(x.rows, RowsPerPiece(x.columns),
                  [&](std::int64_t begin, std::int64_t end) { rows(x, begin, end); });
}

template <class T>
void CpuDevice<T>::SwigluBackward(const SwigluBackwardArguments<T>& x) {
  const auto rows = HWY_DYNAMIC_DISPATCH(SwigluBackward)().template On<T>();
  pool_.ForPieces(x.rows, RowsPerPiece(x.columns),
                  [&](std::int64_t begin, std::int64_t end) { rows(x, begin, end); });
}

template void CpuDevice<float>::Swiglu(const SwigluArguments<float>&);
template void CpuDevice<BFloat16>::Swiglu(const SwigluArguments<BFloat16>&);
template void CpuDevice<Float16>::Swiglu(const SwigluArguments<Float16>&);
template void CpuDevice<float>::SwigluBackward(const SwigluBackwardArguments<float>&);
template void CpuDevice<BFloat16>::SwigluBackward(const SwigluBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::SwigluBackward(const SwigluBackwardArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
