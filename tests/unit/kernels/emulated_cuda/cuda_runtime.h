// CUDA on the host, as far as our kernels use it: for tests on machines without a GPU. A kernel's
// blocks run one after the other, a block's threads as fibers that switch at barriers and at
// operations of a warp. This shows wrong arithmetic, wrong indices, barriers that are missing or that
// not all threads reach. It says nothing about speed, nor about races that no order of fibers shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
/// Blocks do not overlap: one copy serves all.
#define __shared__ static

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

/// Of the fiber that runs.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorInsufficientDriver,
  cudaErrorNoDevice
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
using cudaStream_t = struct CUstream_st*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[32] = "emulated GPU";
  int major = 0, minor = 0;
  cudaUUID_t uuid = {};
};
#define CUDART_VERSION 13000

inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
/// Four GPUs, whose UUIDs end in 0 to 3.
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 4;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  *properties = {};
  properties->uuid.bytes[15] = static_cast<char>(ordinal);
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
/// As much is free as CUDA_EMULATED_FREE says, or 1 GiB. The whole is little, so that chunks whose size
/// follows from it are several.
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* whole) {
  const char* const chosen = std::getenv("CUDA_EMULATED_FREE");
  *whole = std::size_t{8} << 20;
  *free = chosen == nullptr ? std::size_t{1} << 30 : std::strtoull(chosen, nullptr, 10);
  return cudaSuccess;
}
/// Ends before a page that may not be touched; what lies in it is NaN.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

namespace emulated_cuda {

/// Runs the kernel on all threads of all blocks. Ends the program where a block's threads wait for
/// ever, or some ended that others wait for.
void Run(dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel);
/// The block's dynamic shared memory: NaN at first.
void* DynamicShared();

/// Returns when all the block's threads that have not ended are here.
void WaitForBlock();
/// The same, and whether any of them has `value`.
bool AnyOfBlock(bool value);
/// Returns when all lanes of the mask are here; `values` are theirs, eight bytes each.
const std::uint64_t* ExchangeInWarp(unsigned mask, std::uint64_t value);
unsigned Lane();

template <class V>
std::uint64_t ToWord(V value) {
  static_assert(std::is_trivially_copyable_v<V> && sizeof(V) <= 8);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class V>
V FromWord(std::uint64_t word) {
  V value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace emulated_cuda

inline void __syncthreads() { emulated_cuda::WaitForBlock(); }
inline int __syncthreads_or(int value) { return emulated_cuda::AnyOfBlock(value != 0) ? 1 : 0; }

template <class V>
V __shfl_sync(unsigned mask, V value, int lane) {
  return emulated_cuda::FromWord<V>(
      emulated_cuda::ExchangeInWarp(mask, emulated_cuda::ToWord(value))[lane & 31]);
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, int distance) {
  return __shfl_sync(mask, value, static_cast<int>(emulated_cuda::Lane()) ^ distance);
}
template <class V>
V __shfl_up_sync(unsigned mask, V value, int distance) {
  const int lane = static_cast<int>(emulated_cuda::Lane());
  return __shfl_sync(mask, value, lane < distance ? lane : lane - distance);
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  const std::uint64_t* const values = emulated_cuda::ExchangeInWarp(mask, value != 0 ? 1 : 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) != 0 && values[lane] != 0) ballot |= 1U << lane;
  return ballot;
}
inline int __all_sync(unsigned mask, int value) {
  return __ballot_sync(mask, value) == mask ? 1 : 0;
}

template <class V>
V atomicAdd(V* at, std::type_identity_t<V> value) {
  static_assert(std::is_integral_v<V>, "sums of floating-point atomics depend on their order");
  const V old = *at;
  *at = old + value;
  return old;
}
template <class V>
V atomicMax(V* at, std::type_identity_t<V> value) {
  const V old = *at;
  *at = std::max(old, value);
  return old;
}
template <class V>
V atomicExch(V* at, std::type_identity_t<V> value) {
  const V old = *at;
  *at = value;
  return old;
}

using std::max;
using std::min;
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline unsigned __float_as_uint(float value) {
  return emulated_cuda::FromWord<unsigned>(emulated_cuda::ToWord(value));
}
inline float __uint_as_float(unsigned bits) { return emulated_cuda::FromWord<float>(bits); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float2int_rn(float value) { return static_cast<int>(std::lrint(value)); }
// NOLINTEND(bugprone-reserved-identifier)
