// The stage: embedding, blocks and head in a row, and back.
#include "runtime/model/transformer_stage.h"

#include <cassert>

#include "runtime/model/scalars.h"

namespace adaptive_train {

template <class T>
TransformerStage<T>::TransformerStage(const ModelDims& dims, const StageSlice& slice,
                                      const StageOptions& options, kernels::Device<T>& device,
                                      std::span<const T> parameters, std::span<Sum> gradients)
    : dims_(dims),
      slice_(slice),
      options_(options),
      device_(device),
      layout_(dims, slice),
      parameters_(parameters),
      gradients_(gradients),
      layers_(LayersOf(layout_)),
      workspace_(dims, options, device) {
  assert(static_cast<std::int64_t>(parameters.size()) == layout_.size());
  assert(static_cast<std::int64_t>(gradients.size()) == layout_.size());
  if (slice.has_embedding) {
    embedding_.emplace(dims, layout_, options, device);
  } else {
    input_ = {device, static_cast<std::size_t>(options.micro_batch * dims.sequence * dims.hidden)};
  }
  blocks_.reserve(static_cast<std::size_t>(slice.last_block - slice.first_block));
  for (std::int64_t block = slice.first_block; block < slice.last_block; ++block)
    blocks_.emplace_back(dims, layout_, block, options, device);
  if (slice.has_head) head_.emplace(dims, layout_, options, device);
}

template <class T>
std::size_t TransformerStage<T>::activation_bytes() const {
  std::size_t bytes = input_.bytes() + workspace_.bytes();
  if (embedding_) bytes += embedding_->activation_bytes();
  for (const TransformerBlock<T>& block : blocks_) bytes += block.activation_bytes();
  return head_ ? bytes + head_->activation_bytes() : bytes;
}

template <class T>
double TransformerStage<T>::ForwardBackward(const Samples& samples, double loss_scale,
                                            const OnReady& on_ready,
                                            const OnHeadReady& on_head_ready) {
  ForwardTokens(samples.tokens, samples.batch, samples.place);
  const double loss = HeadLoss(samples.targets, loss_scale);
  Backward(nullptr, on_ready, on_head_ready);
  return loss;
}

template <class T>
double TransformerStage<T>::Loss(const Samples& samples) {
  assert(head_);
  Forward({samples.batch, samples.place, 0}, samples.tokens);
  Need(blocks_.size() + 1);
  return head_->Loss(memory(), rows(), output(), samples.targets);
}

template <class T>
void TransformerStage<T>::Logits(const Samples& samples, T* logits) {
  assert(head_);
  Forward({samples.batch, samples.place, 0}, samples.tokens);
  Need(blocks_.size() + 1);
  head_->Logits(memory(), rows(), output(), logits);
}

template <class T>
void TransformerStage<T>::ForwardTokens(std::span<const std::int32_t> tokens, std::int64_t batch,
                                        const SamplePlace& place) {
  Forward({batch, place, options_.dropout}, tokens);
}

template <class T>
void TransformerStage<T>::Need(std::size_t layer) const {
  const LayerElements& elements = layers_[layer];
  if (on_needed_ && elements.size() > 0) on_needed_(elements.begin, elements.end);
}

template <class T>
void TransformerStage<T>::Forward(const Pass& pass, std::span<const std::int32_t> tokens) {
  assert(embedding_ && pass.batch >= 0 && pass.batch <= options_.micro_batch);
  pass_ = pass;
  Need(0);
  {
    LayerClock clock(times_, &PassTimes::forward, LayerPart::kEmbedding);
    embedding_->Forward(memory(), pass_, tokens);
  }
  ForwardBlocks();
}

template <class T>
void TransformerStage<T>::ForwardActivations(const T* input, std::int64_t batch,
                                             const SamplePlace& place) {
  assert(!embedding_ && batch >= 0 && batch <= options_.micro_batch);
  pass_ = {batch, place, options_.dropout};
  device_.CopyWithin(input_.data(), input,
                     static_cast<std::size_t>(rows() * dims_.hidden) * sizeof(T));
  ForwardBlocks();
}

template <class T>
const T* TransformerStage<T>::BlockInput(std::size_t index) const {
  if (index > 0) return blocks_[index - 1].output();
  return embedding_ ? embedding_->output() : input_.data();
}

template <class T>
void TransformerStage<T>::ForwardBlocks() {
  LayerClock clock(times_, &PassTimes::forward, LayerPart::kBlock);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Need(i + 1);
    blocks_[i].Forward(memory(), pass_, BlockInput(i), workspace_);
  }
}

template <class T>
double TransformerStage<T>::HeadLoss(std::span<const std::int32_t> targets, double loss_scale) {
  assert(head_);
  Need(blocks_.size() + 1);
  LayerClock clock(times_, &PassTimes::forward, LayerPart::kHead);
  return head_->TrainingLoss(memory(), rows(), output(), targets, loss_scale);
}

template <class T>
void TransformerStage<T>::Backward(const T* d_output, const OnReady& on_ready,
                                   const OnHeadReady& on_head_ready) {
  assert((d_output == nullptr) == head_.has_value());
  auto not_ready_from = static_cast<std::size_t>(layout_.size());
  const auto ready_from = [&](std::int64_t begin) {
    const auto first = static_cast<std::size_t>(begin);
    if (on_ready && first < not_ready_from) on_ready(first, not_ready_from);
    not_ready_from = first;
  };
  const ParameterRange* wte = layout_.Find("wte.weight");
  Sum* d_token_weight = wte == nullptr ? nullptr : gradients_.data() + wte->offset;
  T* d_residual = workspace_.d_residual.data();
  if (head_) {
    {
      LayerClock clock(times_, &PassTimes::backward, LayerPart::kHead);
      head_->Backward(memory(), rows(), output(), d_residual);
    }
    ready_from(head_->begin());
    if (on_head_ready && wte != nullptr && embedding_ && dims_.tie_embeddings) {
      const auto begin = static_cast<std::size_t>(wte->offset);
      Sum* elsewhere = on_head_ready(begin, begin + static_cast<std::size_t>(wte->count));
      if (elsewhere != nullptr) d_token_weight = elsewhere;
    }
  } else {
    device_.CopyWithin(d_residual, d_output,
                       static_cast<std::size_t>(rows() * dims_.hidden) * sizeof(T));
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    {
      LayerClock clock(times_, &PassTimes::backward, LayerPart::kBlock);
      blocks_[i].Backward(memory(), pass_, BlockInput(i), workspace_);
    }
    ready_from(blocks_[i].begin());
  }
  if (embedding_) {
    LayerClock clock(times_, &PassTimes::backward, LayerPart::kEmbedding);
    embedding_->Backward(memory(), pass_, d_residual, d_token_weight);
  }
  ready_from(0);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TransformerStage)

}  // namespace adaptive_train
