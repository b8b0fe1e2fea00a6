// The processor as a device: products by oneDNN, the rest loops that the compiler vectorizes.
#pragma once

#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/host_device.h"

namespace adaptive_train::kernels::cpu {

/// Work is cut into pieces by its shape alone and each piece is computed by one thread, so results
/// do not depend on the number of threads.
class CpuDevice final : public HostDevice<float> {
 public:
  /// Uses `threads` threads, 1 or more, the caller being one of them.
  explicit CpuDevice(int threads);

  std::string Description() const override;

  void Matmul(const MatmulArguments<float>& x) override;
  void BiasBackward(const BiasBackwardArguments<float>& x) override;
  void LayerNorm(const LayerNormArguments<float>& x) override;
  void LayerNormBackward(const LayerNormBackwardArguments<float>& x) override;
  void Gelu(const GeluArguments<float>& x) override;
  void GeluBackward(const GeluBackwardArguments<float>& x) override;
  void Attention(const AttentionArguments<float>& x) override;
  void AttentionBackward(const AttentionBackwardArguments<float>& x) override;
  void Embedding(const EmbeddingArguments<float>& x) override;
  void EmbeddingBackward(const EmbeddingBackwardArguments<float>& x) override;
  void CrossEntropy(const CrossEntropyArguments<float>& x) override;
  void Add(const AddArguments<float>& x) override;
  void Scale(const ScaleArguments<float>& x) override;
  void AdamW(const AdamWArguments<float>& x) override;
  double Sum(std::int64_t count, const float* values) override;
  double SquaredNorm(std::int64_t count, const float* values) override;

 private:
  ThreadPool pool_;
  std::vector<float> scratch_;   // of attention, an equal part for each thread
  std::vector<double> partial_;  // of the sums, one per piece
};

}  // namespace adaptive_train::kernels::cpu
