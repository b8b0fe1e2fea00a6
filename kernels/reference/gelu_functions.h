// The GELU's forms and derivatives of one number.
#pragma once

#include <cmath>

#include "kernels/gelu.h"

namespace adaptive_train::kernels::reference {

/// The inner tanh of the tanh form.
template <class T>
T TanhOf(T x) {
  return std::tanh(static_cast<T>(kGeluRootTwoOverPi) *
                   (x + static_cast<T>(kGeluCubic) * x * x * x));
}

/// The standard normal distribution's probability of a value below x.
template <class T>
T NormalBelow(T x) {
  return std::erfc(-x / std::sqrt(T{2})) / 2;
}

template <class T>
T GeluOf(GeluForm form, T x) {
  if (form == GeluForm::kTanh) return x / 2 * (1 + TanhOf(x));
  return x * NormalBelow(x);
}

template <class T>
T GeluDerivative(GeluForm form, T x) {
  if (form == GeluForm::kTanh) {
    const T tanh = TanhOf(x);
    const T d_inner =
        static_cast<T>(kGeluRootTwoOverPi) * (1 + 3 * static_cast<T>(kGeluCubic) * x * x);
    return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * d_inner;
  }
  // x times the normal density, sqrt(2/pi) / 2 exp(-x^2 / 2).
  return NormalBelow(x) + x * static_cast<T>(kGeluRootTwoOverPi) / 2 * std::exp(-x * x / 2);
}

}  // namespace adaptive_train::kernels::reference
