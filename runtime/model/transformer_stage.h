// A stage of a Transformer: forward and backward through a contiguous range of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/block.h"
#include "runtime/model/embedding.h"
#include "runtime/model/head.h"
#include "runtime/model/layer_clock.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Called during backward when the gradients in [begin, end) of the arena are final. The ranges
/// come from the end of the arena to its beginning, block by block, and cover it exactly once.
using OnReady = std::function<void(std::size_t begin, std::size_t end)>;

/// Called before a forward pass reads the parameters in [begin, end) of the arena: embedding,
/// blocks and head in turn, each exactly once in a pass.
using OnNeeded = std::function<void(std::size_t begin, std::size_t end)>;

/// Tokens and what is to be predicted in their places, both [batch, sequence] in the host's memory;
/// tokens in [0, vocab), targets below vocab, negative ones counting nothing.
struct Samples {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
  std::int64_t batch = 0;
  SamplePlace place;
};

/// One stage with the activations of one micro-batch. Not thread-safe. Activations at the boundary
/// are [batch, sequence, hidden] in the device's memory. `batch` may change from call to call, up
/// to micro_batch; 0 is allowed.
template <class T>
class TransformerStage {
 public:
  using Sum = kernels::Accumulator<T>;

  /// Called during backward, where embedding and head share a matrix, when the head has added its
  /// part to that matrix's gradient, [begin, end) of the arena. Returns where the embedding is to
  /// add its own part: at end - begin elements of the device's memory, or nullptr: to the arena.
  using OnHeadReady = std::function<Sum*(std::size_t begin, std::size_t end)>;

  /// `parameters` and `gradients` are arenas of layout().size() elements in the device's memory;
  /// they and the device belong to the caller and outlive the stage. Throws std::bad_alloc.
  TransformerStage(const ModelDims& dims, const StageSlice& slice, const StageOptions& options,
                   kernels::Device<T>& device, std::span<const T> parameters,
                   std::span<Sum> gradients);

  const ParameterLayout& layout() const { return layout_; }
  /// Device memory that this stage allocated, arenas not included.
  std::size_t activation_bytes() const;

  /// Training passes add their layers' seconds to `times` from here on; nullptr: to nothing. It
  /// stays the caller's.
  void TimeInto(PassTimes* times) { times_ = times; }

  /// From here on; an empty function: nothing is called.
  void BeforeReading(OnNeeded on_needed) { on_needed_ = std::move(on_needed); }

  // The whole model in one stage.

  /// Returns the sum of the token losses in nats and adds loss_scale times the gradient of that sum
  /// to the gradients. With loss_scale = 1 / (targets of the global batch) the sum over
  /// micro-batches and ranks is the gradient of the global mean, however many samples each has.
  /// Pass on_ready with the last micro-batch of a step, or with each where gradients are taken away
  /// when they are ready.
  double ForwardBackward(const Samples& samples, double loss_scale, const OnReady& on_ready = {},
                         const OnHeadReady& on_head_ready = {});
  /// Returns the sum of the token losses in nats, without dropout.
  double Loss(const Samples& samples);
  /// Writes logits[batch, sequence, vocab], the device's memory, without dropout. samples.targets
  /// is not read.
  void Logits(const Samples& samples, T* logits);

  // Its parts, for stages of a pipeline: one of the two Forwards, then with the head HeadLoss, then
  // Backward.

  /// With the embedding.
  void ForwardTokens(std::span<const std::int32_t> tokens, std::int64_t batch,
                     const SamplePlace& place);
  /// Without: `input` is the output() of the stage before, and is copied.
  void ForwardActivations(const T* input, std::int64_t batch, const SamplePlace& place);
  /// What the next stage takes; valid until the next forward.
  const T* output() const { return BlockInput(blocks_.size()); }

  /// The sum of the token losses; Backward will start from loss_scale times its gradient.
  double HeadLoss(std::span<const std::int32_t> targets, double loss_scale);
  /// d_output is the gradient with respect to output(), or nullptr with the head. Adds to the
  /// gradients.
  void Backward(const T* d_output, const OnReady& on_ready = {},
                const OnHeadReady& on_head_ready = {});
  /// The gradient with respect to the input activations; valid until the next Backward.
  const T* d_input() const { return workspace_.d_residual.data(); }

 private:
  std::int64_t rows() const { return pass_.batch * dims_.sequence; }
  StageMemory<T> memory() const { return {device_, parameters_.data(), gradients_.data()}; }
  /// The residual stream before block number `index` of this stage, or after the last.
  const T* BlockInput(std::size_t index) const;
  /// `layer` counts embedding, blocks and head, also where the stage has none.
  void Need(std::size_t layer) const;
  void Forward(const Pass& pass, std::span<const std::int32_t> tokens);
  void ForwardBlocks();

  const ModelDims dims_;
  const StageSlice slice_;
  const StageOptions options_;
  kernels::Device<T>& device_;
  const ParameterLayout layout_;
  const std::span<const T> parameters_;
  const std::span<Sum> gradients_;
  const std::vector<LayerElements> layers_;
  OnNeeded on_needed_;

  Pass pass_;  // of the last forward
  PassTimes* times_ = nullptr;
  std::optional<TokenEmbedding<T>> embedding_;
  kernels::Buffer<T> input_;  // of the first block, without the embedding
  std::vector<TransformerBlock<T>> blocks_;
  std::optional<LanguageHead<T>> head_;
  BlockWorkspace<T> workspace_;
};

}  // namespace adaptive_train
