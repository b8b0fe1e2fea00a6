#include "kernels/make_device.h"

#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::kernels {

template <class T>
Result<std::unique_ptr<Device<T>>> MakeDevice(const adaptive_train::Device& device) {
  if (device.kind != "cpu")
    return Fail("a device of kind \"" + device.kind + "\": this program computes on \"cpu\" only",
                ExitCode::kPreflight);
  return std::make_unique<cpu::CpuDevice<T>>(device.threads);
}

template Result<std::unique_ptr<Device<float>>> MakeDevice(const adaptive_train::Device&);
template Result<std::unique_ptr<Device<BFloat16>>> MakeDevice(const adaptive_train::Device&);
template Result<std::unique_ptr<Device<Float16>>> MakeDevice(const adaptive_train::Device&);

}  // namespace adaptive_train::kernels
