// The memory side of devices that compute in the host's own memory.
#pragma once

#include <cstring>

#include "kernels/device.h"
#include "kernels/host_memory.h"

namespace adaptive_train::kernels {

/// Operations are finished when their call returns; buffers may be read and written directly.
template <class T>
class HostDevice : public Device<T> {
 public:
  void* Allocate(std::size_t bytes, bool sparse) override { return AllocatePages(bytes, sparse); }
  void Free(void* memory) noexcept override { FreePages(memory); }
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
};

}  // namespace adaptive_train::kernels
