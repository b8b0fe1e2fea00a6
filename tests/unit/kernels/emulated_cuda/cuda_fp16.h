// CUDA's conversions of binary16 on the host.
#pragma once

#include "cuda_runtime.h"
#include "kernels/scalar.h"

using __half = adaptive_train::kernels::Float16;

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline float __half2float(__half value) { return adaptive_train::kernels::ToFloat(value); }
inline __half __float2half_rn(float value) { return adaptive_train::kernels::ToFloat16(value); }
