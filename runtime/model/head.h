// The end of a GPT-2 model: final norm, logits, loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/layers.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// logits = ln_f(input) weight^T, where weight[vocab, hidden] is wte.weight if the embeddings are
/// tied, otherwise lm_head.weight. Owns what backward needs of one forward. Not thread-safe.
template <class T>
class LanguageHead {
 public:
  LanguageHead(const ModelDims& dims, const ParameterLayout& layout, std::int64_t micro_batch,
               kernels::DeviceMemory& memory);

  /// The sum of the losses of `rows` tokens in nats. `targets` is the host's. Backward is possible
  /// after TrainingLoss only, and starts from loss_scale times the gradient of the sum.
  double Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
              std::span<const std::int32_t> targets);
  double TrainingLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                      std::span<const std::int32_t> targets, double loss_scale);
  /// Overwrites d_input and d_norm, both [rows, hidden], of which d_norm is scratch; adds to the
  /// gradients.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* d_norm,
                T* d_input);

  /// Where the parameters that only the head uses begin in the arena.
  std::int64_t begin() const { return begin_; }
  std::size_t activation_bytes() const;

 private:
  double CrossEntropy(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                      std::span<const std::int32_t> targets, double gradient_scale, T* d_logits);

  std::int64_t hidden_, vocab_, begin_, weight_;
  NormLayer<T> ln_f_;
  kernels::Buffer<T> logits_;  // after TrainingLoss: their gradient
  kernels::Buffer<T> losses_;
  kernels::Buffer<std::int32_t> targets_;
};

}  // namespace adaptive_train
