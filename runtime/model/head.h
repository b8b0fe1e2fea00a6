// The end of a model: final norm or BERT's transformation, logits, loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/block.h"
#include "runtime/model/layers.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// GPT-2, Llama: logits = ln_f(input) weight^T. BERT: logits = head.ln(gelu(head.dense(input)))
/// weight^T + head.bias. weight[vocab, hidden] is wte.weight if the embeddings are tied, otherwise
/// lm_head.weight. Logits never stand in memory as a whole: TrainingLoss computes their gradients
/// with them. Not thread-safe.
template <class T>
class LanguageHead {
 public:
  LanguageHead(const ModelDims& dims, const ParameterLayout& layout, const StageOptions& options,
               kernels::DeviceMemory& memory);

  /// The sum of the losses of `rows` tokens in nats; a target below 0 counts nothing. `targets` is
  /// the host's. Backward is possible after TrainingLoss only, which starts from loss_scale times
  /// the gradient of the sum.
  double Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
              std::span<const std::int32_t> targets);
  double TrainingLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                      std::span<const std::int32_t> targets, double loss_scale);
  /// Overwrites d_input[rows, hidden] and adds to the gradients.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* d_input);
  /// The logits of `rows` tokens into logits[rows, vocab], in the device's memory: for showing what
  /// a model says.
  void Logits(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* logits);

  /// Where the parameters that only the head uses begin in the arena.
  std::int64_t begin() const { return begin_; }
  std::size_t activation_bytes() const;

 private:
  void Normalise(const StageMemory<T>& memory, std::int64_t rows, const T* input);
  double HeadLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                  std::span<const std::int32_t> targets, double gradient_scale, T* d_normal);

  std::int64_t hidden_, vocab_, begin_, weight_;
  std::int64_t bias_;                    // -1: none
  std::optional<LinearLayer<T>> dense_;  // BERT
  NormLayer<T> norm_;
  kernels::Buffer<T> dense_output_, activated_;  // BERT
  kernels::Buffer<T> normal_;                    // after TrainingLoss: d_normal_ is its gradient
  kernels::Buffer<T> d_normal_;
  kernels::Buffer<kernels::Accumulator<T>> losses_;
  kernels::Buffer<std::int32_t> targets_;
};

}  // namespace adaptive_train
