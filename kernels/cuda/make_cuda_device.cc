#include "kernels/cuda/make_cuda_device.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/allocation_failure.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/products.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// "-6f3a...": as NVML and nvidia-smi print it behind "GPU", or of a slice behind "MIG".
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

/// "13.0" of 13000.
std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Why this process sees no GPU at all.
std::string WhyNone(cudaError_t error) {
  const std::string gpu = "GPU: ";
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return gpu + "this process sees none; see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES";
  if (error != cudaErrorInsufficientDriver)
    return gpu + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return gpu + "no NVIDIA driver is installed here (no libcuda.so.1)";
  return gpu + "the driver is of CUDA " + VersionText(driver) + "; this program needs CUDA " +
         VersionText(CUDART_VERSION) + " or later";
}

int OrdinalOf(const std::string& uuid) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) throw CudaFailure(WhyNone(counted));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    if (error != cudaSuccess) throw CudaFailure(WhyNone(error));
    const std::string text = UuidText(properties.uuid);
    if ("GPU" + text == uuid || "MIG" + text == uuid) return ordinal;
  }
  throw CudaFailure("GPU: " + uuid + " is not among the " + std::to_string(count) +
                    " that this process sees; see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES");
}

void* Make(Scalar scalar, const std::string& uuid) {
  const int ordinal = OrdinalOf(uuid);
  switch (scalar) {
    case Scalar::kFloat32:
      return static_cast<Device<float>*>(new CudaDevice<float>(ordinal));
    case Scalar::kBFloat16:
      return static_cast<Device<BFloat16>*>(new CudaDevice<BFloat16>(ordinal));
    case Scalar::kFloat16:
      return static_cast<Device<Float16>*>(new CudaDevice<Float16>(ordinal));
  }
  throw CudaFailure("GPU: unknown scalar");
}

}  // namespace
}  // namespace adaptive_train::kernels::cuda

extern "C" [[gnu::visibility("default")]] void* AdaptiveTrainMakeCudaDevice(
    const char* version, adaptive_train::kernels::cuda::Scalar scalar, const char* uuid,
    char* error, std::size_t room) {
  const auto fail = [&](const std::string& message) {
    std::snprintf(error, room, "%s", message.c_str());
    return nullptr;
  };
  if (std::strcmp(version, ADAPTIVE_TRAIN_VERSION) != 0)
    return fail("libadaptive_train_cuda.so is of version " ADAPTIVE_TRAIN_VERSION
                ", this program of " +
                std::string(version) + ": install both from one package");
  try {
    return adaptive_train::kernels::cuda::Make(scalar, uuid);
  } catch (const std::exception& failure) {
    return fail(failure.what());
  }
}
