// Sums and maxima of a warp's and of a block's threads. Only .cu files include it.
#pragma once

#include "kernels/cuda/launch.h"

namespace adaptive_train::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

struct Plus {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};
struct LargerBits {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};
/// NaN if either is.
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// Over groups of `width` lanes, a power of two. Every lane gets the result.
template <class V, class Join>
__device__ V OverLanes(V value, Join join, int width = kWarp) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Over all threads of a block of whole warps; every thread gets the result. `place` is shared
/// memory for as many values as the block has warps, and may be used again at once.
template <class V, class Join>
__device__ V OverBlock(V value, Join join, V* place) {
  value = OverLanes(value, join);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) place[threadIdx.x / kWarp] = value;
  __syncthreads();
  V all = place[0];
  for (int warp = 1; warp < warps; ++warp) all = join(all, place[warp]);
  __syncthreads();
  return all;
}

/// The sum of the values of the block's threads before this one; `all` becomes that of all threads.
/// `place` as above.
template <class V>
__device__ V BeforeInBlock(V value, V* place, V& all) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            own = static_cast<int>(threadIdx.x) / kWarp;
  V sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const V below = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += below;
  }
  if (lane == kWarp - 1) place[own] = sum;
  __syncthreads();
  V before = sum - value;
  all = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) {
    if (warp < own) before += place[warp];
    all += place[warp];
  }
  __syncthreads();
  return before;
}

}  // namespace adaptive_train::kernels::cuda
