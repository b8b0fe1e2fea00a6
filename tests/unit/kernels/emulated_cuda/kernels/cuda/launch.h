// Stands for the file of this name in kernels/cuda: kernels run on the host.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/stream.h"

namespace adaptive_train::kernels::cuda {

template <class... Parameters, class... Arguments>
void Launch(const Stream&, dim3 blocks, dim3 threads, std::size_t shared_bytes,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  emulated_cuda::Run(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
}

template <class E>
E* DynamicShared() {
  return static_cast<E*>(emulated_cuda::DynamicShared());
}

}  // namespace adaptive_train::kernels::cuda
