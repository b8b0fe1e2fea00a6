// What libadaptive_train_cuda.so offers to the program that loads it. No header of CUDA is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/scalar.h"

namespace adaptive_train::kernels::cuda {

enum class Scalar : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

template <class T>
inline constexpr Scalar kScalarOf = std::is_same_v<T, BFloat16>  ? Scalar::kBFloat16
                                    : std::is_same_v<T, Float16> ? Scalar::kFloat16
                                                                 : Scalar::kFloat32;

/// The library's one entry point. Makes a Device<T> of the scalar, which the caller owns, on the GPU
/// that has this UUID, and returns it as void*; or returns nullptr with one line in `error`, which has
/// room for `room` bytes. `version` is the caller's: classes cross the library's border, so both
/// must come from one build.
using MakeCudaDeviceFunction = void*(const char* version, Scalar scalar, const char* uuid,
                                     char* error, std::size_t room);
inline constexpr const char* kMakeCudaDevice = "AdaptiveTrainMakeCudaDevice";
inline constexpr const char* kCudaLibrary = "libadaptive_train_cuda.so";

}  // namespace adaptive_train::kernels::cuda
