// The GELU's forms and derivatives of one number. Only .cu files include it.
#pragma once

#include <cmath>

#include "kernels/gelu.h"

namespace adaptive_train::kernels::cuda {

__device__ inline float GeluTanh(float x) {
  return tanhf(static_cast<float>(kGeluRootTwoOverPi) *
               (x + static_cast<float>(kGeluCubic) * x * x * x));
}

/// The standard normal distribution's probability of a value below x.
__device__ inline float NormalBelow(float x) { return 0.5F * erfcf(-x * 0.70710678118654752F); }

__device__ inline float GeluOf(GeluForm form, float x) {
  if (form == GeluForm::kTanh) return 0.5F * x * (1 + GeluTanh(x));
  return x * NormalBelow(x);
}

__device__ inline float GeluDerivative(GeluForm form, float x) {
  constexpr auto kRoot = static_cast<float>(kGeluRootTwoOverPi);
  if (form == GeluForm::kErf) return NormalBelow(x) + x * (kRoot / 2) * expf(-0.5F * x * x);
  const float tanh = GeluTanh(x);
  const float d_inner = kRoot * (1 + 3 * static_cast<float>(kGeluCubic) * x * x);
  return 0.5F * (1 + tanh) + 0.5F * x * (1 - tanh * tanh) * d_inner;
}

}  // namespace adaptive_train::kernels::cuda
