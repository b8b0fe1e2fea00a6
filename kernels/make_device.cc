#include "kernels/make_device.h"

#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::kernels {

template <class T>
Result<std::unique_ptr<Device<T>>> MakeDevice(const adaptive_train::Device& device) {
  if (device.kind != "cpu")
    return Fail("a device of kind \"" + device.kind + "\": this program computes on \"cpu\" only",
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
