// The start of a model: turns tokens into rows of the residual stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/counter_random.h"
#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/layers.h"
#include "runtime/model/micro_batch_state.h"
#include "runtime/model/pass.h"

namespace adaptive_train {

/// output = dropout(wte[token] + wpe[position] + wtt), with the terms that the layout has. BERT
/// normalises the sum by ln_embedding before dropout. Of several tensor ranks each looks up the
/// tokens of its part of the vocabulary, the first one adds the other terms, and the sum is on all.
/// Any thread, but only one per state.
template <class T>
class TokenEmbedding {
 public:
  TokenEmbedding(const ModelDims& dims, const ParameterLayout& layout, const StageOptions& options);

  /// tokens are in host memory, [batch, sequence]; they count in the whole vocabulary. output is
  /// [batch, sequence, hidden].
  void Forward(const StageMemory<T>& memory, const Pass& pass, std::span<const std::int32_t> tokens,
               EmbeddingState<T>& state, T* output) const;
  /// Adds to the gradients, those of wte at `d_token_weight`; d_output is [batch, sequence, hidden]
  /// and is overwritten.
  void Backward(const StageMemory<T>& memory, const Pass& pass, T* d_output,
                kernels::Accumulator<T>* d_token_weight, const EmbeddingState<T>& state) const;

 private:
  void CopyTokens(std::span<const std::int32_t> tokens, EmbeddingState<T>& state) const;
  void Drop(const StageMemory<T>& memory, const Pass& pass, T* values) const;

  std::int64_t hidden_, sequence_;
  ElementRange vocabulary_;       // whose rows are here
  std::int64_t wte_, wpe_, wtt_;  // offsets; -1: none
  const CounterRandom random_;
  std::optional<NormLayer<T>> norm_;  // BERT
};

}  // namespace adaptive_train
