// The stage: embedding, blocks and head in a row, and back.
#include "runtime/model/gpt.h"

#include <cassert>

namespace adaptive_train {

template <class T>
GptStage<T>::GptStage(const ModelDims& dims, const StageSlice& slice, std::int64_t micro_batch,
                      kernels::Device<T>& device, std::span<const T> parameters,
                      std::span<T> gradients)
    : dims_(dims),
      slice_(slice),
      micro_batch_(micro_batch),
      device_(device),
      layout_(dims, slice),
      parameters_(parameters),
      gradients_(gradients),
      input_(device, static_cast<std::size_t>(micro_batch * dims.sequence * dims.hidden)),
      workspace_(device, micro_batch * dims.sequence, dims.hidden) {
  assert(static_cast<std::int64_t>(parameters.size()) == layout_.size());
  assert(static_cast<std::int64_t>(gradients.size()) == layout_.size());
  if (slice.has_embedding)
    tokens_ = {device, static_cast<std::size_t>(micro_batch * dims.sequence)};
  blocks_.reserve(static_cast<std::size_t>(slice.last_block - slice.first_block));
  for (std::int64_t block = slice.first_block; block < slice.last_block; ++block) {
    blocks_.emplace_back(dims, layout_, block, micro_batch, device);
  }
  if (slice.has_head) head_.emplace(dims, layout_, micro_batch, device);
}

template <class T>
std::size_t GptStage<T>::activation_bytes() const {
  std::size_t bytes = tokens_.bytes() + input_.bytes() + workspace_.bytes();
  for (const TransformerBlock<T>& block : blocks_) bytes += block.activation_bytes();
  return head_ ? bytes + head_->activation_bytes() : bytes;
}

template <class T>
double GptStage<T>::ForwardBackward(std::span<const std::int32_t> tokens,
                                    std::span<const std::int32_t> targets, std::int64_t batch,
                                    double loss_scale, const OnReady& on_ready) {
  ForwardTokens(tokens, batch);
  const double loss = HeadLoss(targets, loss_scale);
  Backward(nullptr, on_ready);
  return loss;
}

template <class T>
double GptStage<T>::Loss(std::span<const std::int32_t> tokens,
                         std::span<const std::int32_t> targets, std::int64_t batch) {
  assert(head_);
  ForwardTokens(tokens, batch);
  return head_->Loss(memory(), rows(), output(), targets);
}

template <class T>
void GptStage<T>::ForwardTokens(std::span<const std::int32_t> tokens, std::int64_t batch) {
  assert(slice_.has_embedding && batch >= 0 && batch <= micro_batch_);
  batch_ = batch;
  assert(static_cast<std::int64_t>(tokens.size()) == rows());
  tokens_.CopyFromHost(tokens);
  device_.Embedding({.batch = batch,
                     .sequence = dims_.sequence,
                     .columns = dims_.hidden,
                     .tokens = tokens_.data(),
                     .token_weight = parameters_.data() + layout_.Find("wte.weight")->offset,
                     .position_weight = parameters_.data() + layout_.Find("wpe.weight")->offset,
                     .output = input_.data()});
  ForwardBlocks();
}

template <class T>
void GptStage<T>::ForwardActivations(const T* input, std::int64_t batch) {
  assert(!slice_.has_embedding && batch >= 0 && batch <= micro_batch_);
  batch_ = batch;
  device_.CopyWithin(input_.data(), input,
                     static_cast<std::size_t>(rows() * dims_.hidden) * sizeof(T));
  ForwardBlocks();
}

template <class T>
const T* GptStage<T>::BlockInput(std::size_t index) const {
  return index == 0 ? input_.data() : blocks_[index - 1].output();
}

template <class T>
void GptStage<T>::ForwardBlocks() {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].Forward(memory(), batch_, BlockInput(i));
}

template <class T>
double GptStage<T>::HeadLoss(std::span<const std::int32_t> targets, double loss_scale) {
  assert(head_);
  return head_->TrainingLoss(memory(), rows(), output(), targets, loss_scale);
}

template <class T>
void GptStage<T>::Backward(const T* d_output, const OnReady& on_ready) {
  assert((d_output == nullptr) == head_.has_value());
  auto not_ready_from = static_cast<std::size_t>(layout_.size());
  const auto ready_from = [&](std::int64_t begin) {
    const auto first = static_cast<std::size_t>(begin);
    if (on_ready && first < not_ready_from) on_ready(first, not_ready_from);
    not_ready_from = first;
  };
  T* d_residual = workspace_.d_residual.data();
  if (head_) {
    head_->Backward(memory(), rows(), output(), workspace_.d_narrow.data(), d_residual);
    ready_from(head_->begin());
  } else {
    device_.CopyWithin(d_residual, d_output,
                       static_cast<std::size_t>(rows() * dims_.hidden) * sizeof(T));
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].Backward(memory(), batch_, BlockInput(i), workspace_);
    ready_from(blocks_[i].begin());
  }
  if (slice_.has_embedding) EmbeddingBackward();
  ready_from(0);
}

template <class T>
void GptStage<T>::EmbeddingBackward() {
  device_.EmbeddingBackward(
      {.batch = batch_,
       .sequence = dims_.sequence,
       .columns = dims_.hidden,
       .tokens = tokens_.data(),
       .d_output = workspace_.d_residual.data(),
       .d_token_weight = gradients_.data() + layout_.Find("wte.weight")->offset,
       .d_position_weight = gradients_.data() + layout_.Find("wpe.weight")->offset});
}

template class GptStage<float>;
template class GptStage<double>;

}  // namespace adaptive_train
