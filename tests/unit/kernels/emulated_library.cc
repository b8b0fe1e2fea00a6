// libadaptive_train_cuda.so with the emulated GPU. The host cannot touch its memory, as with a real one.
#include <memory>

#define AdaptiveTrainMakeCudaDevice MakeOpenDevice
#include "kernels/cuda/make_cuda_device.cc"
#undef AdaptiveTrainMakeCudaDevice

#include "tests/fakes/guarded_device.h"

namespace {

using namespace adaptive_train::kernels;

/// Lives as long as the process, as runs' devices do.
template <class T>
void* Guarded(void* open) {
  return static_cast<Device<T>*>(new GuardedDevice<T>(*static_cast<Device<T>*>(open)));
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void* AdaptiveTrainMakeCudaDevice(
    const char* version, cuda::Scalar scalar, const char* uuid, char* error, std::size_t room) {
  void* const open = MakeOpenDevice(version, scalar, uuid, error, room);
  if (open == nullptr) return nullptr;
  switch (scalar) {
    case cuda::Scalar::kFloat32:
      return Guarded<float>(open);
    case cuda::Scalar::kBFloat16:
      return Guarded<BFloat16>(open);
    case cuda::Scalar::kFloat16:
      return Guarded<Float16>(open);
  }
  return nullptr;
}
