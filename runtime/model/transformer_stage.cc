// Runs embedding, blocks and head in a row, and backward.
#include "runtime/model/transformer_stage.h"

#include <cassert>
#include <utility>

#include "runtime/model/scalars.h"

namespace adaptive_train {

template <class T>
TransformerStage<T>::TransformerStage(const ModelDims& dims, const StageSlice& slice,
                                      const StageOptions& options, kernels::Device<T>& device,
                                      const StageArenas<T>& arenas, StageWorkspace<T>& workspace,
                                      TensorRanks<T> tensor)
    : dims_(dims),
      slice_(slice),
      options_(options),
      device_(device),
      arenas_(arenas),
      workspace_(workspace),
      tensor_(std::move(tensor)),
      layers_(LayersOf(arenas.layout, slice)) {
  assert(static_cast<std::int64_t>(arenas.parameters.size()) == layout().size());
  assert(static_cast<std::int64_t>(arenas.gradients.size()) == layout().size());
  assert(workspace.head || !slice.has_head);
  assert(!options.reproducible || (kTensorGroups % tensor_.part.ranks == 0 && dims.kv_ranks == 1));
  assert(options.row_ranks == 1 || options.row_ranks == tensor_.part.ranks);
  assert(layout().tensor().ranks == tensor_.part.ranks &&
         layout().tensor().rank == tensor_.part.rank);
  if (slice.has_embedding) embedding_.emplace(dims, layout(), options);
  blocks_.reserve(static_cast<std::size_t>(slice.last_block - slice.first_block));
  for (std::int64_t block = slice.first_block; block < slice.last_block; ++block)
    blocks_.emplace_back(dims, layout(), block, options);
  if (slice.has_head) head_.emplace(dims, layout());
}

template <class T>
StageMemory<T> TransformerStage<T>::BlockMemory(PassTimes* times) const {
  StageMemory<T> memory = Memory();
  memory.times = times;
  if (!SharesRows()) return memory;
  memory.whole = workspace_.block.whole.data();
  memory.norm_gradients = workspace_.block.norm_gradients.data();
  return memory;
}

template <class T>
T* TransformerStage<T>::Whole(const MicroBatchState<T>& state, T* own) {
  if (!SharesRows()) return own;
  BlockMemory().Whole(Rows(state), dims_.hidden, own);
  return workspace_.block.whole.data();
}

template <class T>
void TransformerStage<T>::CopyOwn(const MicroBatchState<T>& state, const T* whole, T* own) {
  if (SharesRows())
    device_.CopyWithin(own, whole + OwnRows(state).begin * dims_.hidden, BoundaryBytes(state));
}

template <class T>
double TransformerStage<T>::ForwardBackward(MicroBatchState<T>& state, const Samples& samples,
                                            double loss_scale, const OnReady& on_ready,
                                            const OnHeadReady& on_head_ready) {
  ForwardTokens(state, {samples.batch, samples.place, options_.dropout}, samples.tokens);
  const double loss = HeadLoss(state, samples.targets, loss_scale);
  Backward(state, nullptr, on_ready, on_head_ready);
  return loss;
}

template <class T>
double TransformerStage<T>::Loss(MicroBatchState<T>& state, const Samples& samples) {
  ForwardTokens(state, {samples.batch, samples.place, 0}, samples.tokens);
  return HeadLoss(state, samples.targets);
}

template <class T>
void TransformerStage<T>::Logits(MicroBatchState<T>& state, const Samples& samples, T* logits) {
  assert(head_);
  ForwardTokens(state, {samples.batch, samples.place, 0}, samples.tokens);
  Need(blocks_.size() + 1);
  head_->Logits(Memory(), Rows(state), state.output(), logits, *state.head, *workspace_.head);
}

template <class T>
void TransformerStage<T>::Need(std::size_t layer) const {
  const LayerElements& elements = layers_[layer];
  if (on_needed_ && elements.size() > 0) on_needed_(elements.begin, elements.end);
}

template <class T>
void TransformerStage<T>::Ready(std::size_t layer, const OnReady& on_ready) const {
  const LayerElements& elements = layers_[layer];
  if (on_ready && elements.size() > 0) on_ready(elements.begin, elements.end);
}

template <class T>
const T* TransformerStage<T>::ForwardTokens(MicroBatchState<T>& state, const Pass& pass,
                                            std::span<const std::int32_t> tokens) {
  assert(embedding_ && pass.batch >= 0 && pass.batch <= options_.micro_batch);
  state.pass = pass;
  Need(0);
  {
    LayerClock clock(device_, state.times, &PassTimes::forward, LayerPart::kEmbedding,
                     tensor_.waited_s);
    T* own = state.embedding->output.data();
    T* whole = SharesRows() ? workspace_.block.whole.data() : own;
    embedding_->Forward(Memory(), pass, tokens, *state.embedding, whole);
    CopyOwn(state, whole, own);
  }
  ForwardBlocks(state);
  return state.output();
}

template <class T>
const T* TransformerStage<T>::ForwardActivations(MicroBatchState<T>& state, const Pass& pass,
                                                 const T* input) {
  assert(!embedding_ && pass.batch >= 0 && pass.batch <= options_.micro_batch);
  state.pass = pass;
  if (input != state.input.data())
    device_.CopyWithin(state.input.data(), input, BoundaryBytes(state));
  ForwardBlocks(state);
  return state.output();
}

template <class T>
void TransformerStage<T>::ForwardBlocks(MicroBatchState<T>& state) {
  LayerClock clock(device_, state.times, &PassTimes::forward, LayerPart::kBlock, tensor_.waited_s);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Need(i + 1);
    blocks_[i].Forward(BlockMemory(), state.pass, state.BlockInput(i), state.blocks[i],
                       workspace_.block);
  }
}

template <class T>
double TransformerStage<T>::HeadLoss(MicroBatchState<T>& state,
                                     std::span<const std::int32_t> targets, double loss_scale) {
  assert(head_);
  Need(blocks_.size() + 1);
  LayerClock clock(device_, state.times, &PassTimes::forward, LayerPart::kHead, tensor_.waited_s);
  return head_->TrainingLoss(Memory(), Rows(state), Whole(state, state.output()), targets,
                             loss_scale, *state.head, *workspace_.head);
}

template <class T>
double TransformerStage<T>::HeadLoss(MicroBatchState<T>& state,
                                     std::span<const std::int32_t> targets) {
  assert(head_);
  Need(blocks_.size() + 1);
  return head_->Loss(Memory(), Rows(state), Whole(state, state.output()), targets, *state.head,
                     *workspace_.head);
}

template <class T>
void TransformerStage<T>::HeadBackward(MicroBatchState<T>& state) {
  LayerClock clock(device_, state.times, &PassTimes::backward, LayerPart::kHead, tensor_.waited_s);
  T* d_residual = workspace_.block.d_residual.data();
  T* d_whole = SharesRows() ? workspace_.head->normal.data() : d_residual;
  head_->Backward(Memory(), Rows(state), Whole(state, state.output()), d_whole, *state.head);
  CopyOwn(state, d_whole, d_residual);
}

/// Where the embedding adds the gradient of its matrix, once the head has added its own.
template <class T>
typename TransformerStage<T>::Sum* TransformerStage<T>::TokenGradient(
    const OnHeadReady& on_head_ready) const {
  if (!embedding_) return nullptr;
  if (!arenas_.embedding_part.empty()) return arenas_.embedding_part.data();
  const ParameterRange& wte = *layout().Find("wte.weight");
  if (on_head_ready && head_ && dims_.tie_embeddings) {
    const auto begin = static_cast<std::size_t>(wte.offset);
    Sum* elsewhere = on_head_ready(begin, begin + static_cast<std::size_t>(wte.count));
    if (elsewhere != nullptr) return elsewhere;
  }
  return arenas_.gradients.data() + wte.offset;
}

template <class T>
const T* TransformerStage<T>::Backward(MicroBatchState<T>& state, const T* d_output,
                                       const OnReady& on_ready, const OnHeadReady& on_head_ready) {
  return Backward(state, d_output, on_ready, on_head_ready, &TransformerBlock<T>::Backward);
}

template <class T>
const T* TransformerStage<T>::BackwardInput(MicroBatchState<T>& state, const T* d_output,
                                            const OnReady& on_input) {
  assert(options_.recompute == Recompute::kNone);
  return Backward(state, d_output, on_input, {}, &TransformerBlock<T>::BackwardInput);
}

template <class T>
const T* TransformerStage<T>::Backward(MicroBatchState<T>& state, const T* d_output,
                                       const OnReady& on_ready, const OnHeadReady& on_head_ready,
                                       BlockBackward backward) {
  assert((d_output == nullptr) == head_.has_value());
  T* d_residual = workspace_.block.d_residual.data();
  if (head_) {
    HeadBackward(state);
  } else {
    device_.CopyWithin(d_residual, d_output, BoundaryBytes(state));
  }
  Ready(blocks_.size() + 1, on_ready);
  Sum* d_token_weight = TokenGradient(on_head_ready);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    {
      LayerClock clock(device_, state.times, &PassTimes::backward, LayerPart::kBlock,
                       tensor_.waited_s);
      (blocks_[i].*backward)(BlockMemory(state.times), state.pass, state.BlockInput(i),
                             state.blocks[i], workspace_.block);
    }
    Ready(i + 1, on_ready);
  }
  if (embedding_) {
    LayerClock clock(device_, state.times, &PassTimes::backward, LayerPart::kEmbedding,
                     tensor_.waited_s);
    embedding_->Backward(Memory(), state.pass, Whole(state, d_residual), d_token_weight,
                         *state.embedding);
  }
  Ready(0, on_ready);
  return d_residual;
}

template <class T>
void TransformerStage<T>::BackwardWeight(MicroBatchState<T>& state, const OnReady& on_ready) {
  Ready(blocks_.size() + 1, on_ready);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    {
      LayerClock clock(device_, state.times, &PassTimes::backward, LayerPart::kBlock,
                       tensor_.waited_s);
      blocks_[i].BackwardWeight(BlockMemory(state.times), state.pass, state.BlockInput(i),
                                state.blocks[i], workspace_.block);
    }
    Ready(i + 1, on_ready);
  }
  Ready(0, on_ready);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TransformerStage)

}  // namespace adaptive_train
