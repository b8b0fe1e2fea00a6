// Passes over arenas, and what the host gathers from them.
#include "kernels/arena.h"

#include <cfloat>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr int kBlockBytes = static_cast<int>(Int8Bytes(kInt8Block));
constexpr int kPerLane = static_cast<int>(kInt8Block) / kWarp;
constexpr unsigned kQuietNan = 0x7fc00000;

__device__ bool Finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

/// A warp packs a block of values. Every operation is rounded by itself, as on the CPU. `packed`
/// need not be aligned.
__global__ void __launch_bounds__(kThreads)
    PackInt8Kernel(std::int64_t count, const float* values, std::byte* packed) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t block = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t first = block * static_cast<std::int64_t>(kInt8Block);
  float mine[kPerLane], largest = 0;
  int finite = 1;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const std::int64_t i = first + j * kWarp + lane;
    mine[j] = i < count ? values[i] : 0;
    largest = fmaxf(largest, fabsf(mine[j]));
    finite &= Finite(mine[j]) ? 1 : 0;
  }
  largest = OverLanes(largest, Larger());
  finite = __all_sync(kAllLanes, finite);
  if (first >= count) return;
  const float scale = finite != 0 ? __fdiv_rn(largest, 127) : __uint_as_float(kQuietNan);
  // The scale of tiny values may be 0 or subnormal; their steps are then 0.
  const float times = finite != 0 && scale >= FLT_MIN ? __fdiv_rn(1, scale) : 0;
  std::byte* const out = packed + block * kBlockBytes;
  if (lane < 4) out[lane] = static_cast<std::byte>(__float_as_uint(scale) >> (8 * lane));
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const float steps = finite != 0 ? fminf(fmaxf(__fmul_rn(mine[j], times), -127), 127) : 0;
    if (first + j * kWarp + lane < count)
      out[4 + j * kWarp + lane] =
          static_cast<std::byte>(static_cast<std::int8_t>(__float2int_rn(steps)));
  }
}

/// A warp unpacks a block of values.
template <class T>
__global__ void __launch_bounds__(kThreads)
    UnpackInt8Kernel(std::int64_t count, const std::byte* packed, T* values) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t block = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t first = block * static_cast<std::int64_t>(kInt8Block);
  if (first >= count) return;
  const std::byte* const from = packed + block * kBlockBytes;
  unsigned bits = 0;
  for (int byte = 0; byte < 4; ++byte) bits |= static_cast<unsigned>(from[byte]) << (8 * byte);
  const float scale = __uint_as_float(bits);
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int i = j * kWarp + lane;
    if (first + i >= count) continue;
    const auto steps = static_cast<std::int8_t>(from[4 + i]);
    values[first + i] = Narrow<T>(__fmul_rn(scale, static_cast<float>(steps)));
  }
}

}  // namespace

template <class T>
void CudaDevice<T>::AddInto(std::int64_t count, const float* from, float* into) {
  stream_.Begin("AddInto");
  ForElements(stream_, count, [from, into] __device__(std::int64_t i) { into[i] += from[i]; });
}

template <class T>
void CudaDevice<T>::AddDifference(std::int64_t count, const float* more, const float* less,
                                  float* into) {
  stream_.Begin("AddDifference");
  ForElements(stream_, count,
              [more, less, into] __device__(std::int64_t i) { into[i] += more[i] - less[i]; });
}

template <class T>
void CudaDevice<T>::Scale(std::int64_t count, float factor, float* values) {
  stream_.Begin("Scale");
  ForElements(stream_, count, [factor, values] __device__(std::int64_t i) { values[i] *= factor; });
}

template <class T>
void CudaDevice<T>::ClearNotFinite(std::int64_t count, float* values) {
  stream_.Begin("ClearNotFinite");
  ForElements(stream_, count, [values] __device__(std::int64_t i) {
    if (!Finite(values[i])) values[i] = 0;
  });
}

template <class T>
void CudaDevice<T>::PackInt8(std::int64_t count, const float* values, std::byte* packed) {
  stream_.Begin("PackInt8");
  if (count == 0) return;
  const std::int64_t blocks = Pieces(count, static_cast<std::int64_t>(kInt8Block));
  Launch(stream_, static_cast<unsigned>(Pieces(blocks, kThreads / kWarp)), kThreads, 0,
         PackInt8Kernel, count, values, packed);
}

template <class T>
void CudaDevice<T>::UnpackInt8(std::int64_t count, const std::byte* packed, T* values) {
  stream_.Begin("UnpackInt8");
  if (count == 0) return;
  const std::int64_t blocks = Pieces(count, static_cast<std::int64_t>(kInt8Block));
  Launch(stream_, static_cast<unsigned>(Pieces(blocks, kThreads / kWarp)), kThreads, 0,
         UnpackInt8Kernel<T>, count, packed, values);
}

template <class T>
void CudaDevice<T>::GatherToHost(std::span<float> to, const float* from,
                                 std::span<const std::size_t> places) {
  if (to.empty()) return;
  const auto count = static_cast<std::int64_t>(to.size());
  auto* const at = scratch_.For<std::size_t>(2 * count);
  auto* const gathered = reinterpret_cast<float*>(at + count);
  CopyFromHost(at, places.data(), places.size_bytes());
  stream_.Begin("GatherToHost");
  ForElements(stream_, count,
              [at, from, gathered] __device__(std::int64_t i) { gathered[i] = from[at[i]]; });
  CopyToHost(to.data(), gathered, to.size_bytes());
}

#define ADAPTIVE_TRAIN_CUDA_ARENA(T)                                                            \
  template void CudaDevice<T>::AddInto(std::int64_t, const float*, float*);                     \
  template void CudaDevice<T>::AddDifference(std::int64_t, const float*, const float*, float*); \
  template void CudaDevice<T>::Scale(std::int64_t, float, float*);                              \
  template void CudaDevice<T>::ClearNotFinite(std::int64_t, float*);                            \
  template void CudaDevice<T>::PackInt8(std::int64_t, const float*, std::byte*);                \
  template void CudaDevice<T>::UnpackInt8(std::int64_t, const std::byte*, T*);                  \
  template void CudaDevice<T>::GatherToHost(std::span<float>, const float*,                     \
                                            std::span<const std::size_t>);
ADAPTIVE_TRAIN_CUDA_ARENA(float)
ADAPTIVE_TRAIN_CUDA_ARENA(BFloat16)
ADAPTIVE_TRAIN_CUDA_ARENA(Float16)
#undef ADAPTIVE_TRAIN_CUDA_ARENA

}  // namespace adaptive_train::kernels::cuda
