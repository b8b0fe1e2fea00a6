// The common base of devices that compute in host memory: the memory and the passes over arenas.
#pragma once

#include "kernels/device.h"
#include "kernels/host_memory.h"

namespace adaptive_train::kernels {

/// Operations are complete when their call returns; buffers may be read and written directly.
template <class T>
class HostDevice : public InHostMemory<Device<T>> {
 public:
  void AddInto(std::int64_t count, const Accumulator<T>* from, Accumulator<T>* into) override;
  void AddDifference(std::int64_t count, const Accumulator<T>* more, const Accumulator<T>* less,
                     Accumulator<T>* into) override;
  void Scale(std::int64_t count, Accumulator<T> factor, Accumulator<T>* values) override;
  void ClearNotFinite(std::int64_t count, Accumulator<T>* values) override;
  std::uint64_t Hash(const void* memory, std::size_t bytes) override;
  void PackInt8(std::int64_t count, const Accumulator<T>* values, std::byte* packed) override;
  void UnpackInt8(std::int64_t count, const std::byte* packed, T* values) override;
  std::int64_t AddSelected(const AddSelectedArguments<T>& x) override;
  void Sample(const SampleArguments<T>& x) override;
  double Largest(std::int64_t count, const Accumulator<T>* gradients,
                 const Accumulator<T>* residuals) override;
};

}  // namespace adaptive_train::kernels
