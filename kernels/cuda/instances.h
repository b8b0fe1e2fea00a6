// The scalars that devices are made for.
#pragma once

/// Instantiates CudaDevice<T>'s void METHOD(const ARGUMENTS<T>&) for every scalar.
#define ADAPTIVE_TRAIN_CUDA_OPERATION(METHOD, ARGUMENTS)                  \
  template void CudaDevice<float>::METHOD(const ARGUMENTS<float>&);       \
  template void CudaDevice<BFloat16>::METHOD(const ARGUMENTS<BFloat16>&); \
  template void CudaDevice<Float16>::METHOD(const ARGUMENTS<Float16>&);
