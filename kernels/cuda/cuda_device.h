// A GPU as a device.
#pragma once

#include <string>

#include "kernels/cuda/products.h"
#include "kernels/cuda/stream.h"
#include "kernels/device.h"

namespace adaptive_train::kernels::cuda {

/// Cosines and sines of a rotary embedding's latest call, in the GPU's memory.
struct RotaryTable {
  std::int64_t sequence = -1, head_size = 0;
  double base = 0;
  RopeScaling scaling = {};
  Buffer<float> cosine, sine;  // [sequence, head_size / 2]
};

/// Arrays of float, BFloat16 or Float16 in a GPU's memory; sums are in float32. Operations are queued
/// on one stream, and those that return a value wait for it. No floating-point atomics: the same
/// calls give the same bits. A failure of CUDA is a CudaFailure, memory that cannot be had an
/// AllocationFailure.
template <class T>
class CudaDevice : public Device<T> {
 public:
  /// The GPU of this ordinal among those that the process sees.
  explicit CudaDevice(int ordinal);

  std::string Description() const override;

  void* Allocate(std::size_t bytes, bool sparse) override;
  void Free(void* memory) noexcept override;
  void CopyFromHost(void* to, const void* from, std::size_t bytes) override;
  void CopyToHost(void* to, const void* from, std::size_t bytes) override;
  void GatherToHost(std::span<float> to, const float* from,
                    std::span<const std::size_t> places) override;
  void CopyWithin(void* to, const void* from, std::size_t bytes) override;
  void Clear(void* memory, std::size_t bytes) override;
  /// The memory stays the process's.
  void Release(void* memory, std::size_t bytes) override { Clear(memory, bytes); }
  bool OnHost() const override { return false; }
  void Wait() override;
  std::optional<std::int64_t> FreeBytes() const override;

  void Matmul(const MatmulArguments<T>& x) override;
  void WeightGradient(const WeightGradientArguments<T>& x) override;
  void LayerNorm(const NormArguments<T>& x) override;
  void LayerNormBackward(const NormBackwardArguments<T>& x) override;
  void RmsNorm(const NormArguments<T>& x) override;
  void RmsNormBackward(const NormBackwardArguments<T>& x) override;
  void Gelu(const GeluArguments<T>& x) override;
  void GeluBackward(const GeluBackwardArguments<T>& x) override;
  void Swiglu(const SwigluArguments<T>& x) override;
  void SwigluBackward(const SwigluBackwardArguments<T>& x) override;
  void Rope(const RopeArguments<T>& x) override;
  void Attention(const AttentionArguments<T>& x) override;
  void AttentionBackward(const AttentionBackwardArguments<T>& x) override;
  void Embedding(const EmbeddingArguments<T>& x) override;
  void EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) override;
  void HeadLoss(const HeadLossArguments<T>& x) override;
  void Dropout(const DropoutArguments<T>& x) override;
  void AdamW(const AdamWArguments<T>& x) override;
  void Round(const RoundArguments<T>& x) override;
  void Widen(std::int64_t count, const T* values, float* sums) override;
  double Sum(std::int64_t count, const float* values) override;
  double SquaredNorm(std::int64_t count, const float* values) override;
  void AddInto(std::int64_t count, const float* from, float* into) override;
  void AddDifference(std::int64_t count, const float* more, const float* less,
                     float* into) override;
  void Scale(std::int64_t count, float factor, float* values) override;
  void ClearNotFinite(std::int64_t count, float* values) override;
  /// Hashed on the host: XXH3 is a chain.
  std::uint64_t Hash(const void* memory, std::size_t bytes) override;
  void PackInt8(std::int64_t count, const float* values, std::byte* packed) override;
  void UnpackInt8(std::int64_t count, const std::byte* packed, T* values) override;
  Selected Select(const SelectArguments<T>& x) override;
  double Threshold(const ThresholdArguments<T>& x) override;
  std::int64_t AddSelected(const AddSelectedArguments<T>& x) override;
  void Sample(const SampleArguments<T>& x) override;
  double Largest(std::int64_t count, const float* gradients, const float* residuals) override;

 private:
  Stream stream_;
  Products products_;
  Room scratch_, partial_;
  RotaryTable rotary_;
  const std::int64_t memory_bytes_;  // of the GPU, whoever has them
};

}  // namespace adaptive_train::kernels::cuda
