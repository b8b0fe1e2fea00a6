// AdamW as plain loops, and rounding, which does nothing to float and double.
#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::AdamW(const AdamWArguments<T>& x) {
  const double first_correction = 1 - std::pow(x.beta1, static_cast<double>(x.step));
  const double second_correction = 1 - std::pow(x.beta2, static_cast<double>(x.step));
  for (std::int64_t i = 0; i < x.count; ++i) {
    const T gradient = static_cast<T>(x.gradient_scale) * x.gradients[i];
    T& first = x.first_moments[i];
    T& second = x.second_moments[i];
    first = static_cast<T>(x.beta1) * first + static_cast<T>(1 - x.beta1) * gradient;
    second = static_cast<T>(x.beta2) * second +
             static_cast<T>((1 - x.beta2) * x.square_scale) * gradient * gradient;
    const T direction =
        first / static_cast<T>(first_correction) /
        (std::sqrt(second / static_cast<T>(second_correction)) + static_cast<T>(x.epsilon));
    x.parameters[i] -=
        static_cast<T>(x.lr) * (direction + static_cast<T>(x.weight_decay) * x.parameters[i]);
    if (x.weights != nullptr) x.weights[i] = x.parameters[i];
  }
}

template <class T>
void ReferenceDevice<T>::Round(const RoundArguments<T>& x) {
  std::copy(x.parameters, x.parameters + x.count, x.weights);
}

template <class T>
void ReferenceDevice<T>::Widen(std::int64_t count, const T* values, Accumulator<T>* sums) {
  std::copy(values, values + count, sums);
}

template void ReferenceDevice<float>::AdamW(const AdamWArguments<float>&);
template void ReferenceDevice<double>::AdamW(const AdamWArguments<double>&);
template void ReferenceDevice<float>::Round(const RoundArguments<float>&);
template void ReferenceDevice<double>::Round(const RoundArguments<double>&);
template void ReferenceDevice<float>::Widen(std::int64_t, const float*, float*);
template void ReferenceDevice<double>::Widen(std::int64_t, const double*, double*);

}  // namespace adaptive_train::kernels::reference
