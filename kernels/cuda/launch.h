// How kernels are started, and what they are given. Only .cu files include it. Tests have another
// file of this name, which runs kernels on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "kernels/cuda/stream.h"

namespace adaptive_train::kernels::cuda {

/// Dynamic shared memory that a kernel has without being asked for more.
inline constexpr std::size_t kUsualSharedBytes = 48 << 10;

/// Throws if the GPU gives no block this much shared memory.
inline void RequireShared(const Stream& stream, std::size_t bytes) {
  int most = 0;
  stream.Check(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, stream.ordinal()));
  if (bytes > static_cast<std::size_t>(most))
    throw CudaFailure(std::string("GPU, ") + stream.operation() + ": a block needs " +
                      std::to_string(bytes >> 10) + " KiB of shared memory, this GPU gives it " +
                      std::to_string(most >> 10) + " KiB");
}

/// Starts kernel(arguments...) on `blocks` blocks, none of whose dimensions is 0.
template <class... Parameters, class... Arguments>
void Launch(const Stream& stream, dim3 blocks, dim3 threads, std::size_t shared_bytes,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (shared_bytes > kUsualSharedBytes) {
    RequireShared(stream, shared_bytes);
    stream.Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_bytes)));
  }
  kernel<<<blocks, threads, shared_bytes, stream.get()>>>(arguments...);
  stream.Check(cudaGetLastError());
}

/// The block's dynamic shared memory.
template <class E>
__device__ E* DynamicShared() {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<E*>(dynamic_shared);
}

}  // namespace adaptive_train::kernels::cuda
