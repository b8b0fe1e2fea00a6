// The CPU as a device, vectorized with Highway.
#pragma once

#include <vector>

#include "kernels/cpu/passes.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_device.h"

namespace adaptive_train::kernels::cpu {

/// Arrays of float, BFloat16 or Float16; all arithmetic is in float32. Results do not depend on the
/// number of threads: one thread computes each piece of work. How work is cut into pieces depends
/// on the shape alone, or does not affect the result.
template <class T>
class CpuDevice : public HostDevice<T> {
 public:
  /// Uses `threads` threads, 1 or more, including the caller. Products use the processor's matrix
  /// unit if it has one that this process may use.
  explicit CpuDevice(int threads);

  std::string Description() const override;

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
  double Sum(std::int64_t count, const Accumulator<T>* values) override;
  double SquaredNorm(std::int64_t count, const Accumulator<T>* values) override;
  Selected Select(const SelectArguments<T>& x) override;
  double Threshold(const ThresholdArguments<T>& x) override;

 private:
  /// Room for `floats` floats, aligned to 64 bytes and uninitialised. The next call reuses it.
  float* Scratch(std::int64_t floats);

  ThreadPool pool_;
  const bool by_tiles_;
  Buffer<float> scratch_;
  std::vector<double> partial_;            // of the sums, one per piece
  std::vector<std::uint32_t> bin_counts_;  // of a threshold's histogram
  RopeTable rope_table_;                   // of the latest call
};

}  // namespace adaptive_train::kernels::cpu
