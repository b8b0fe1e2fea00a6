// The memory side of devices that compute in the host's own memory.
#pragma once

#include <cstring>
#include <new>

#include "kernels/device.h"
#include "kernels/host_memory.h"

namespace adaptive_train::kernels {

/// Operations are finished when their call returns; buffers may be read and written directly.
template <class T>
class HostDevice : public Device<T> {
 public:
  void* Allocate(std::size_t bytes) override {
    return bytes == 0 ? nullptr : ::operator new(bytes, kAlignment);
  }
  void Free(void* memory) noexcept override { ::operator delete(memory, kAlignment); }
  void CopyFromHost(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void CopyWithin(void* to, const void* from, std::size_t bytes) override {
    std::memmove(to, from, bytes);
  }
  void Clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
  void Release(void* memory, std::size_t bytes) override { ReleasePages(memory, bytes); }

 private:
  static constexpr std::align_val_t kAlignment{64};
};

}  // namespace adaptive_train::kernels
