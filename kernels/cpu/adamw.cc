// AdamW in one pass over the arenas, and rounding.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void AdamWPiece(const AdamWArguments<T>& x, std::int64_t begin, std::int64_t end) {
  const auto step = static_cast<double>(x.step);
  const auto each = [](double value) HWY_ATTR { return Set(static_cast<float>(value)); };
  const Floats beta1 = each(x.beta1), new1 = each(1 - x.beta1);
  const Floats beta2 = each(x.beta2), new2 = each((1 - x.beta2) * x.square_scale);
  const Floats correction1 = each(1 / (1 - std::pow(x.beta1, step)));
  const Floats correction2 = each(1 / (1 - std::pow(x.beta2, step)));
  const Floats epsilon = each(x.epsilon), lr = each(x.lr), decay = each(x.weight_decay);
  const Floats gradient_scale = each(x.gradient_scale);
  float* parameters = x.parameters;
  const float* gradients = x.gradients;
  float* first_moments = x.first_moments;
  float* second_moments = x.second_moments;
  T* weights = x.weights;
  ForVectors(begin, end, [=](std::int64_t i, auto part) HWY_ATTR {
    const Floats gradient = hn::Mul(gradient_scale, Load(gradients + i, part));
    const Floats first = hn::MulAdd(beta1, Load(first_moments + i, part), hn::Mul(new1, gradient));
    const Floats second = hn::MulAdd(beta2, Load(second_moments + i, part),
                                     hn::Mul(hn::Mul(new2, gradient), gradient));
    const Floats deviation = hn::Add(hn::Sqrt(hn::Mul(second, correction2)), epsilon);
    const Floats direction = hn::Div(hn::Mul(first, correction1), deviation);
    const Floats old = Load(parameters + i, part);
    const Floats parameter = hn::NegMulAdd(lr, hn::MulAdd(decay, old, direction), old);
    Store(first, first_moments + i, part);
    Store(second, second_moments + i, part);
    Store(parameter, parameters + i, part);
    if (weights != nullptr) Store(parameter, weights + i, part);
  });
}

template <class T>
void RoundPiece(const RoundArguments<T>& x, std::int64_t begin, std::int64_t end) {
  ForVectors(begin, end, [&x](std::int64_t i, auto part) HWY_ATTR {
    Store(Load(x.parameters + i, part), x.weights + i, part);
  });
}

PieceFunctions<AdamWArguments> AdamWPieces() {
  return {AdamWPiece<float>, AdamWPiece<BFloat16>, AdamWPiece<Float16>};
}
PieceFunctions<RoundArguments> RoundPieces() {
  return {RoundPiece<float>, RoundPiece<BFloat16>, RoundPiece<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(AdamWPieces);
HWY_EXPORT(RoundPieces);
}  // namespace

template <class T>
void CpuDevice<T>::AdamW(const AdamWArguments<T>& x) {
  const auto piece = HWY_DYNAMIC_DISPATCH(AdamWPieces)().template On<T>();
  pool_.ForPieces(x.count, kElementsPerPiece,
                  [&](std::int64_t begin, std::int64_t end) { piece(x, begin, end); });
}

template <class T>
void CpuDevice<T>::Round(const RoundArguments<T>& x) {
  const auto piece = HWY_DYNAMIC_DISPATCH(RoundPieces)().template On<T>();
  pool_.ForPieces(x.count, kElementsPerPiece,
                  [&](std::int64_t begin, std::int64_t end) { piece(x, begin, end); });
}

template void CpuDevice<float>::AdamW(const AdamWArguments<float>&);
template void CpuDevice<BFloat16>::AdamW(const AdamWArguments<BFloat16>&);
template void CpuDevice<Float16>::AdamW(const AdamWArguments<Float16>&);
template void CpuDevice<float>::Round(const RoundArguments<float>&);
template void CpuDevice<BFloat16>::Round(const RoundArguments<BFloat16>&);
template void CpuDevice<Float16>::Round(const RoundArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
