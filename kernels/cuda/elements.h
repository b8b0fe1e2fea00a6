// Kernels that do the same to every element, and scalars as kernels read and write them. Only .cu
// files include it.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels::cuda {

__device__ inline float Wide(float value) { return value; }
__device__ inline float Wide(BFloat16 value) { return ToFloat(value); }
__device__ inline float Wide(Float16 value) { return __half2float(__ushort_as_half(value.bits)); }

/// `value` in T, rounded to nearest even.
template <class T>
__device__ T Narrow(float value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(value);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {__half_as_ushort(__float2half_rn(value))};
  } else {
    return value;
  }
}

constexpr std::int64_t Pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

inline constexpr int kThreads = 256;

template <class Body>
__global__ void __launch_bounds__(kThreads) ElementsKernel(std::int64_t count, Body body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step)
    body(i);
}

/// body(i) for i in [0, count), a thread each.
template <class Body>
void ForElements(const Stream& stream, std::int64_t count, const Body& body) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(Pieces(count, kThreads), kMostBlocks));
  Launch(stream, blocks, kThreads, 0, ElementsKernel<Body>, count, body);
}

}  // namespace adaptive_train::kernels::cuda
