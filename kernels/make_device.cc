#include "kernels/make_device.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/make_cuda_device.h"

namespace adaptive_train::kernels {
namespace {

/// Where the library is: beside the build's programs, or where it is installed. Never a user's path: a
/// library is code.
std::vector<std::filesystem::path> CudaLibraries() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::filesystem::path> paths;
  for (const char* folder : {"../lib", ADAPTIVE_TRAIN_LIBRARY_FOLDER})
    paths.push_back((program / folder / cuda::kCudaLibrary).lexically_normal());
  return paths;
}

/// The library stays loaded: devices and their errors are its code.
Result<cuda::MakeCudaDeviceFunction*> LoadCuda() {
  for (const std::filesystem::path& path : CudaLibraries()) {
    if (!std::filesystem::exists(path)) continue;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Fail(::dlerror(), ExitCode::kPreflight);
    void* const entry = ::dlsym(library, cuda::kMakeCudaDevice);
    if (entry == nullptr)
      return Fail(path.string() + " is of another version: it has no " + cuda::kMakeCudaDevice,
                  ExitCode::kPreflight);
    return reinterpret_cast<cuda::MakeCudaDeviceFunction*>(entry);
  }
  return Fail("a GPU needs " + CudaLibraries().back().string() +
                  ", which is not installed: this package was built without CUDA",
              ExitCode::kPreflight);
}

template <class T>
Result<std::unique_ptr<Device<T>>> MakeCudaDevice(const adaptive_train::Device& of_plan) {
  if (of_plan.uuid.empty())
    return Fail("GPU " + std::to_string(of_plan.index) + " of " + of_plan.node +
                    " has no UUID in the plan; GPUs are told apart by it",
                ExitCode::kPreflight);
  const auto make = LoadCuda();
  if (!make) return tl::unexpected(make.error());
  std::array<char, 512> error{};
  void* const device = (*make)(ADAPTIVE_TRAIN_VERSION, cuda::kScalarOf<T>, of_plan.uuid.c_str(),
                               error.data(), error.size());
  if (device == nullptr) return Fail(error.data(), ExitCode::kPreflight);
  return std::unique_ptr<Device<T>>(static_cast<Device<T>*>(device));
}

}  // namespace

template <class T>
Result<std::unique_ptr<Device<T>>> MakeDevice(const adaptive_train::Device& device) {
  if (device.kind == "cuda") return MakeCudaDevice<T>(device);
  if (device.kind != "cpu")
    return Fail("a device of kind \"" + device.kind + "\": this program computes on cpu and cuda",
                ExitCode::kPreflight);
  return MakeCpuDevice<T>(device.threads);
}

template <class T>
std::unique_ptr<Device<T>> MakeCpuDevice(int threads) {
  return std::make_unique<cpu::CpuDevice<T>>(threads);
}

template std::unique_ptr<Device<float>> MakeCpuDevice(int);
template std::unique_ptr<Device<BFloat16>> MakeCpuDevice(int);
template std::unique_ptr<Device<Float16>> MakeCpuDevice(int);
template Result<std::unique_ptr<Device<float>>> MakeDevice(const adaptive_train::Device&);
template Result<std::unique_ptr<Device<BFloat16>>> MakeDevice(const adaptive_train::Device&);
template Result<std::unique_ptr<Device<Float16>>> MakeDevice(const adaptive_train::Device&);

}  // namespace adaptive_train::kernels
