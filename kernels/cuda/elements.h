// Kernels that do the same to every element, and scalars as kernels read and write them. Only .cu
// files include it.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

/// Neighbours in memory that are read or written at once, where their address is aligned to all of
/// them.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Neighbours {
  T at[kCount];
};

template <int kCount, class T>
__device__ Neighbours<T, kCount> Load(const T* from) {
  return *reinterpret_cast<const Neighbours<T, kCount>*>(from);
}
template <int kCount, class T>
__device__ void Store(const Neighbours<T, kCount>& values, T* to) {
  *reinterpret_cast<Neighbours<T, kCount>*>(to) = values;
}

/// Whether all these arrays, and rows of `columns` elements in them, may be read `count` elements
/// at a time.
template <class... T>
bool AreAligned(std::int64_t count, std::int64_t columns, const T*... arrays) {
  const auto fits = [&](const auto* array) {
    return reinterpret_cast<std::uintptr_t>(array) %
               (static_cast<std::size_t>(count) * sizeof *array) ==
           0;
  };
  return columns % count == 0 && (fits(arrays) && ...);
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

/// body(i, width) for i in [0, count) in steps of the width, an std::integral_constant: kCount
/// neighbours a thread where the arrays are aligned to them, and one where they are not.
template <int kCount, class Body, class... T>
void ForNeighbours(const Stream& stream, std::int64_t count, const Body& body, const T*... arrays) {
  const std::int64_t groups = AreAligned(kCount, 0, arrays...) ? count / kCount : 0;
  ForElements(stream, groups, [body] __device__(std::int64_t i) {
    body(kCount * i, std::integral_constant<int, kCount>());
  });
  ForElements(stream, count - groups * kCount, [body, groups] __device__(std::int64_t i) {
    body(groups * kCount + i, std::integral_constant<int, 1>());
  });
}

}  // namespace adaptive_train::kernels::cuda
