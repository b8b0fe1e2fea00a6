// GELU in one pass over memory.
#include "kernels/gelu.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <GeluForm kForm, class T>
void Forward(const GeluArguments<T>& x, std::int64_t begin, std::int64_t end) {
  const T* input = x.input + begin;
  T* output = x.output + begin;
  ForVectors(0, end - begin, [=](std::int64_t i, auto part) HWY_ATTR {
    Store(Gelu<kForm>(Load(input + i, part)), output + i, part);
  });
}

template <GeluForm kForm, class T>
void Backward(const GeluBackwardArguments<T>& x, std::int64_t begin, std::int64_t end) {
  const T* input = x.input + begin;
  const T* d_output = x.d_output + begin;
  T* d_input = x.d_input + begin;
  ForVectors(0, end - begin, [=](std::int64_t i, auto part) HWY_ATTR {
    const Floats slope = GeluDerivative<kForm>(Load(input + i, part));
    Store(hn::Mul(Load(d_output + i, part), slope), d_input + i, part);
  });
}

template <GeluForm kForm>
PieceFunctions<GeluArguments> ForwardOf() {
  return {Forward<kForm, float>, Forward<kForm, BFloat16>, Forward<kForm, Float16>};
}
template <GeluForm kForm>
PieceFunctions<GeluBackwardArguments> BackwardOf() {
  return {Backward<kForm, float>, Backward<kForm, BFloat16>, Backward<kForm, Float16>};
}
PieceFunctions<GeluArguments> GeluForward(GeluForm form) {
  return form == GeluForm::kTanh ? ForwardOf<GeluForm::kTanh>() : ForwardOf<GeluForm::kErf>();
}
PieceFunctions<GeluBackwardArguments> GeluBackward(GeluForm form) {
  return form == GeluForm::kTanh ? BackwardOf<GeluForm::kTanh>() : BackwardOf<GeluForm::kErf>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluBackward);
}  // namespace

template <class T>
void CpuDevice<T>::Gelu(const GeluArguments<T>& x) {
  const auto piece = HWY_DYNAMIC_DISPATCH(GeluForward)(x.form).template On<T>();
  pool_.ForPieces(x.count, kElementsPerPiece,
                  [&](std::int64_t begin, std::int64_t end) { piece(x, begin, end); });
}

template <class T>
void CpuDevice<T>::GeluBackward(const GeluBackwardArguments<T>& x) {
  const auto piece = HWY_DYNAMIC_DISPATCH(GeluBackward)(x.form).template On<T>();
  pool_.ForPieces(x.count, kElementsPerPiece,
                  [&](std::int64_t begin, std::int64_t end) { piece(x, begin, end); });
}

template void CpuDevice<float>::Gelu(const GeluArguments<float>&);
template void CpuDevice<BFloat16>::Gelu(const GeluArguments<BFloat16>&);
template void CpuDevice<Float16>::Gelu(const GeluArguments<Float16>&);
template void CpuDevice<float>::GeluBackward(const GeluBackwardArguments<float>&);
template void CpuDevice<BFloat16>::GeluBackward(const GeluBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::GeluBackward(const GeluBackwardArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
