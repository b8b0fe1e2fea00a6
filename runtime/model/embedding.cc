// Forward and backward of the embedding.
#include "runtime/model/embedding.h"

#include <cassert>
#include <vector>

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

/// Blocks count their dropout layers from 0, two each.
constexpr std::uint16_t kDropoutLayer = 0xffff;

template <class E>
E* At(E* arena, std::int64_t offset) {
  return offset < 0 ? nullptr : arena + offset;
}

}  // namespace

template <class T>
TokenEmbedding<T>::TokenEmbedding(const ModelDims& dims, const ParameterLayout& layout,
                                  const StageOptions& options)
    : hidden_(dims.hidden),
      sequence_(dims.sequence),
      vocabulary_(layout.Find("wte.weight")->rows),
      wte_(layout.OffsetOf("wte.weight")),
      wpe_(layout.OffsetOf("wpe.weight")),
      wtt_(layout.OffsetOf("wtt.weight")),
      random_(options.seed, RandomPurpose::kDropout) {
  if (dims.kind == ModelKind::kBert) norm_.emplace(layout, "ln_embedding", dims.NormEpsilon());
}

template <class T>
void TokenEmbedding<T>::Forward(const StageMemory<T>& memory, const Pass& pass,
                                std::span<const std::int32_t> tokens, EmbeddingState<T>& state,
                                T* output) const {
  assert(static_cast<std::int64_t>(tokens.size()) == pass.batch * sequence_);
  CopyTokens(tokens, state);
  T* sum = norm_ ? state.sum.data() : output;
  const bool adds = memory.tensor.part.rank == 0;
  memory.device.Embedding({.batch = pass.batch,
                           .sequence = sequence_,
                           .columns = hidden_,
                           .tokens = state.tokens.data(),
                           .token_weight = memory.parameters + wte_,
                           .position_weight = adds ? At(memory.parameters, wpe_) : nullptr,
                           .type_weight = adds ? At(memory.parameters, wtt_) : nullptr,
                           .token_last = memory.groups > 0,
                           .output = sum});
  memory.Sum(sum, pass.batch * sequence_ * hidden_);
  if (norm_) norm_->Forward(memory, pass.batch * sequence_, sum, output, *state.norm);
  Drop(memory, pass, output);
}

/// Counts tokens in this rank's rows of the matrix; others' are negative.
template <class T>
void TokenEmbedding<T>::CopyTokens(std::span<const std::int32_t> tokens,
                                   EmbeddingState<T>& state) const {
  std::vector<std::int32_t> here(tokens.begin(), tokens.end());
  for (std::int32_t& token : here) {
    const bool has_row = token >= vocabulary_.begin && token < vocabulary_.end;
    token = has_row ? token - static_cast<std::int32_t>(vocabulary_.begin) : -1;
  }
  state.tokens.CopyFromHost(std::span<const std::int32_t>(here));
}

template <class T>
void TokenEmbedding<T>::Backward(const StageMemory<T>& memory, const Pass& pass, T* d_output,
                                 kernels::Accumulator<T>* d_token_weight,
                                 const EmbeddingState<T>& state) const {
  Drop(memory, pass, d_output);
  if (norm_)
    norm_->Backward(memory, pass.batch * sequence_, d_output, state.sum.data(), d_output, false,
                    *state.norm);
  memory.device.EmbeddingBackward({.batch = pass.batch,
                                   .sequence = sequence_,
                                   .columns = hidden_,
                                   .tokens = state.tokens.data(),
                                   .d_output = d_output,
                                   .d_token_weight = d_token_weight,
                                   .d_position_weight = At(memory.gradients, wpe_),
                                   .d_type_weight = At(memory.gradients, wtt_)});
}

/// The same mask forward and backward.
template <class T>
void TokenEmbedding<T>::Drop(const StageMemory<T>& memory, const Pass& pass, T* values) const {
  if (pass.dropout == 0) return;
  memory.device.Dropout({.elements = sequence_ * hidden_,
                         .end = pass.batch * sequence_ * hidden_,
                         .probability = pass.dropout,
                         .random = random_,
                         .step = pass.place.step,
                         .first_sample = pass.place.first_sample,
                         .layer = kDropoutLayer,
                         .input = values,
                         .output = values});
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TokenEmbedding)

}  // namespace adaptive_train
