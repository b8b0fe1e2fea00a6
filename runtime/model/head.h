// The end of a model: final norm or BERT's transformation, logits, loss.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/layers.h"
#include "runtime/model/micro_batch_state.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/model/stage_workspace.h"

namespace adaptive_train {

/// GPT-2, Llama: logits = ln_f(input) weight^T.
/// BERT: logits = head.ln(gelu(head.dense(input))) weight^T + head.bias.
/// weight[vocab, hidden] is wte.weight if the embeddings are tied, otherwise lm_head.weight. Logits
/// are never stored as a whole: TrainingLoss computes their gradients with them. Several tensor
/// ranks share the vocabulary; each gets the whole loss. Any thread, but only one per state and
/// workspace.
template <class T>
class LanguageHead {
 public:
  LanguageHead(const ModelDims& dims, const ParameterLayout& layout);

  /// The sum of the losses of `rows` tokens in nats; negative targets are skipped. `targets` is in
  /// host memory. Backward is possible only after TrainingLoss. It starts from loss_scale times the
  /// gradient of the sum, and adds to the gradients of weight and head.bias at once.
  double Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
              std::span<const std::int32_t> targets, HeadState<T>& state,
              HeadWorkspace<T>& workspace) const;
  double TrainingLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                      std::span<const std::int32_t> targets, double loss_scale, HeadState<T>& state,
                      HeadWorkspace<T>& workspace) const;
  /// Overwrites d_input[rows, hidden] and adds to the gradients.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* d_input,
                HeadState<T>& state) const;
  /// Writes the logits of `rows` tokens to logits[rows, vocab] in device memory, to show a model's
  /// predictions. Without other tensor ranks.
  void Logits(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* logits,
              HeadState<T>& state, HeadWorkspace<T>& workspace) const;

 private:
  void Normalise(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                 HeadState<T>& state, HeadWorkspace<T>& workspace) const;
  double HeadLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                  std::span<const std::int32_t> targets, double gradient_scale, T* d_normal,
                  HeadState<T>& state, HeadWorkspace<T>& workspace) const;

  std::int64_t hidden_;
  ElementRange vocabulary_;  // whose rows of the weight are here
  std::int64_t whole_vocabulary_;
  std::int64_t weight_;
  std::int64_t bias_;                    // -1: none
  std::optional<LinearLayer<T>> dense_;  // BERT
  NormLayer<T> norm_;
};

}  // namespace adaptive_train
