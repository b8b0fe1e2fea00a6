// The GELU's forms and derivatives, of one number and of arrays. Only .cu files include it.
#pragma once

#include <cmath>

#include "kernels/cuda/elements.h"
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

inline constexpr int kGeluAtOnce = 8;

/// output[i] = gelu(input[i])
template <class T>
void ApplyGelu(const Stream& stream, std::int64_t count, GeluForm form, const T* input, T* output) {
  ForNeighbours<kGeluAtOnce>(
      stream, count,
      [form, input, output] __device__(std::int64_t i, auto width) {
        Neighbours<T, width> values = Load<width>(input + i);
#pragma unroll
        for (T& value : values.at) value = Narrow<T>(GeluOf(form, Wide(value)));
        Store(values, output + i);
      },
      input, output);
}

/// d_input[i] = d_output[i] * gelu'(input[i]); d_input may be d_output.
template <class T>
void MultiplyByGeluDerivative(const Stream& stream, std::int64_t count, GeluForm form,
                              const T* input, const T* d_output, T* d_input) {
  ForNeighbours<kGeluAtOnce>(
      stream, count,
      [form, input, d_output, d_input] __device__(std::int64_t i, auto width) {
        const Neighbours<T, width> values = Load<width>(input + i);
        Neighbours<T, width> gradients = Load<width>(d_output + i);
#pragma unroll
        for (int j = 0; j < width; ++j)
          gradients.at[j] =
              Narrow<T>(Wide(gradients.at[j]) * GeluDerivative(form, Wide(values.at[j])));
        Store(gradients, d_input + i);
      },
      input, d_output, d_input);
}

}  // namespace adaptive_train::kernels::cuda
