// The host's memory: its pages, and DeviceMemory of it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "kernels/buffer.h"

namespace adaptive_train::kernels {

/// As DeviceMemory::Allocate. Memory that is not sparse lies in whole huge pages where the system
/// has some to give. Walking a matrix row by row would miss the TLB often with small pages.
void* AllocatePages(std::size_t bytes, bool sparse);
void FreePages(void* memory) noexcept;

/// Sets `bytes` from `memory` on to 0, in the memory of a heap or an anonymous mapping. Whole pages
/// among them leave the process until they are touched again.
void ReleasePages(void* memory, std::size_t bytes);

/// `Base`, which is a DeviceMemory, with memory of the host. Calls are complete on return.
template <class Base>
class InHostMemory : public Base {
 public:
  void* Allocate(std::size_t bytes, bool sparse) override { return AllocatePages(bytes, sparse); }
  void Free(void* memory) noexcept override { FreePages(memory); }
  // An array of no bytes may be nullptr, which memcpy may not be given.
  void CopyFromHost(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void GatherToHost(std::span<float> to, const float* from,
                    std::span<const std::size_t> places) override {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[places[i]];
  }
  void CopyWithin(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void Clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
  void Release(void* memory, std::size_t bytes) override { ReleasePages(memory, bytes); }
  bool OnHost() const override { return true; }
  void Wait() override {}
  std::optional<std::int64_t> FreeBytes() const override { return std::nullopt; }
};

/// The memory of a program that computes on no device, such as one that only reads checkpoints.
using HostMemory = InHostMemory<DeviceMemory>;

}  // namespace adaptive_train::kernels
