// Forward and backward of the embedding.
#include "runtime/model/embedding.h"

#include <cassert>

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
                                  const StageOptions& options, kernels::DeviceMemory& memory)
    : hidden_(dims.hidden),
      sequence_(dims.sequence),
      wte_(layout.OffsetOf("wte.weight")),
      wpe_(layout.OffsetOf("wpe.weight")),
      wtt_(layout.OffsetOf("wtt.weight")),
      random_(options.seed, RandomPurpose::kDropout),
      tokens_(memory, static_cast<std::size_t>(options.micro_batch * dims.sequence)),
      output_(memory, static_cast<std::size_t>(options.micro_batch * dims.sequence * dims.hidden)) {
  if (layout.Find("ln_embedding.weight") == nullptr) return;
  norm_.emplace(layout, "ln_embedding", dims.NormEpsilon(), memory,
                options.micro_batch * dims.sequence);
  sum_ = {memory, output_.size()};
}

template <class T>
void TokenEmbedding<T>::Forward(const StageMemory<T>& memory, const Pass& pass,
                                std::span<const std::int32_t> tokens) {
  assert(static_cast<std::int64_t>(tokens.size()) == pass.batch * sequence_);
  tokens_.CopyFromHost(tokens);
  T* sum = norm_ ? sum_.data() : output_.data();
  memory.device.Embedding({.batch = pass.batch,
                           .sequence = sequence_,
                           .columns = hidden_,
                           .tokens = tokens_.data(),
                           .token_weight = memory.parameters + wte_,
                           .position_weight = At(memory.parameters, wpe_),
                           .type_weight = At(memory.parameters, wtt_),
                           .output = sum});
  if (norm_) norm_->Forward(memory, pass.batch * sequence_, sum, output_.data());
  Drop(memory, pass, output_.data());
}

template <class T>
void TokenEmbedding<T>::Backward(const StageMemory<T>& memory, const Pass& pass, T* d_output,
                                 kernels::Accumulator<T>* d_token_weight) {
  Drop(memory, pass, d_output);
  if (norm_)
    norm_->Backward(memory, pass.batch * sequence_, d_output, sum_.data(), d_output, false);
  memory.device.EmbeddingBackward({.batch = pass.batch,
                                   .sequence = sequence_,
                                   .columns = hidden_,
                                   .tokens = tokens_.data(),
                                   .d_output = d_output,
                                   .d_token_weight = d_token_weight,
                                   .d_position_weight = At(memory.gradients, wpe_),
                                   .d_type_weight = At(memory.gradients, wtt_)});
}

/// The same mask forward and backward.
template <class T>
void TokenEmbedding<T>::Drop(const StageMemory<T>& memory, const Pass& pass, T* values) const {
  if (pass.dropout == 0) return;
  memory.device.Dropout({.batch = pass.batch,
                         .elements = sequence_ * hidden_,
                         .probability = pass.dropout,
                         .random = random_,
                         .step = pass.place.step,
                         .first_sample = pass.place.first_sample,
                         .layer = kDropoutLayer,
                         .input = values,
                         .output = values});
}

template <class T>
std::size_t TokenEmbedding<T>::activation_bytes() const {
  return tokens_.bytes() + sum_.bytes() + output_.bytes() + (norm_ ? norm_->bytes() : 0);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TokenEmbedding)

}  // namespace adaptive_train
