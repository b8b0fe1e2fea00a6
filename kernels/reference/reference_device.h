// The oracle: every operation as plain loops that follow its contract word by word, on one thread.
#pragma once

#include "kernels/host_device.h"

namespace adaptive_train::kernels::reference {

/// Computes and accumulates in T. Made for float and double; slow on purpose.
template <class T>
class ReferenceDevice final : public HostDevice<T> {
 public:
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
  void Widen(std::int64_t count, const T* values, Accumulator<T>* sums) override;
  double Sum(std::int64_t count, const Accumulator<T>* values) override;
  double SquaredNorm(std::int64_t count, const Accumulator<T>* values) override;
  Selected Select(const SelectArguments<T>& x) override;
  double Threshold(const ThresholdArguments<T>& x) override;
};

}  // namespace adaptive_train::kernels::reference
