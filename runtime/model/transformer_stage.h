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
#include "core/orders.h"
#include "kernels/device.h"
#include "runtime/model/block.h"
#include "runtime/model/embedding.h"
#include "runtime/model/head.h"
#include "runtime/model/micro_batch_state.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/model/pass.h"
#include "runtime/model/stage_workspace.h"
#include "runtime/model/tensor_ranks.h"

namespace adaptive_train {

/// Called during backward when the gradients in [begin, end) of the arena are final. The ranges
/// come from the end of the stage's part of the arena to its start, block by block, and cover it
/// exactly once.
using OnReady = std::function<void(std::size_t begin, std::size_t end)>;

/// Called before a forward pass reads the parameters in [begin, end) of the arena: embedding,
/// blocks and head in turn, each exactly once per pass.
using OnNeeded = std::function<void(std::size_t begin, std::size_t end)>;

/// Tokens and targets, both [batch, sequence] in host memory. Tokens are in [0, vocab), targets
/// below vocab; negative targets are skipped.
struct Samples {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
  std::int64_t batch = 0;
  SamplePlace place;
};

/// The arenas that passes read and add to: layout.size() elements each, in device memory. All owned
/// by the caller.
template <class T>
struct StageArenas {
  const ParameterLayout& layout;
  std::span<const T> parameters;
  std::span<kernels::Accumulator<T>> gradients;
  /// Where the embedding adds its part of the gradient of a matrix that it shares with the head, as
  /// large as the matrix. Empty: in `gradients`, or where OnHeadReady says.
  std::span<kernels::Accumulator<T>> embedding_part = {};
};

/// One stage of a model, or one chunk of a rank with several. It knows its weights, and keeps what
/// a micro-batch's backward needs in that micro-batch's state, so that as many may be in flight as
/// there are states. Not thread-safe. Activations at the boundary are [batch, sequence, hidden] in
/// device memory. `batch` may change from call to call, from 0 to micro_batch.
template <class T>
class TransformerStage {
 public:
  using Sum = kernels::Accumulator<T>;

  /// Called during backward if embedding and head share a matrix, when the head has added its part
  /// to the gradient of that matrix, [begin, end) of the arena. Returns where the embedding adds
  /// its own part: end - begin elements of device memory, or nullptr for the arena.
  using OnHeadReady = std::function<Sum*(std::size_t begin, std::size_t end)>;

  /// The arenas' layout contains `slice`, and possibly other chunks. Arenas, device and workspace
  /// belong to the caller and outlive the stage. The workspace has the same dimensions and options,
  /// and a head's part if the slice has the head. Of several tensor ranks, `dims` are those of this
  /// one's part (PartOf), and the layout is of the part. They all run the same passes in the same
  /// order: each has the whole loss, and at the boundary the whole activations, or its own rows where
  /// options.row_ranks is their number. With
  /// options.reproducible their number divides kTensorGroups, T is its own accumulator, and the
  /// sums of `tensor` add the ranks' values as a balanced tree.
  TransformerStage(const ModelDims& dims, const StageSlice& slice, const StageOptions& options,
                   kernels::Device<T>& device, const StageArenas<T>& arenas,
                   StageWorkspace<T>& workspace, TensorRanks<T> tensor = {});

  const ParameterLayout& layout() const { return arenas_.layout; }
  const StageSlice& slice() const { return slice_; }
  /// Bytes that go from this stage to the next, and back.
  std::size_t BoundaryBytes(const MicroBatchState<T>& state) const {
    return static_cast<std::size_t>(OwnRows(state).size() * dims_.hidden) * sizeof(T);
  }
  /// A state for one micro-batch in flight; must not outlive the device. Throws std::bad_alloc.
  MicroBatchState<T> NewState() const { return {dims_, slice_, options_, device_}; }

  /// Applies to later passes; an empty function turns it off.
  void BeforeReading(OnNeeded on_needed) { on_needed_ = std::move(on_needed); }

  // For a stage with the whole model.

  /// Returns the sum of the token losses in nats, and adds loss_scale times the gradient of that
  /// sum to the gradients. With loss_scale = 1 / (targets of the global batch) the sum over
  /// micro-batches and ranks is the gradient of the global mean, however many samples each has.
  /// Pass on_ready with the last micro-batch of a step, or with each if gradients are removed when
  /// they are ready.
  double ForwardBackward(MicroBatchState<T>& state, const Samples& samples, double loss_scale,
                         const OnReady& on_ready = {}, const OnHeadReady& on_head_ready = {});
  /// Returns the sum of the token losses in nats, without dropout.
  double Loss(MicroBatchState<T>& state, const Samples& samples);
  /// Writes logits[batch, sequence, vocab] to device memory, without dropout. Ignores
  /// samples.targets.
  void Logits(MicroBatchState<T>& state, const Samples& samples, T* logits);

  // The parts of a pass, for pipeline stages: one of the two Forwards, then with the head HeadLoss,
  // then Backward of the same state. Passes of other states may come between them. Gradients are
  // added in the order of the calls. Two rules keep the bits of one micro-batch after another.
  // Micro-batches go backward in their order, and HeadLoss comes directly before Backward if head
  // and embedding share a matrix.

  /// With the embedding. Returns state.output(), the input of the next stage.
  const T* ForwardTokens(MicroBatchState<T>& state, const Pass& pass,
                         std::span<const std::int32_t> tokens);
  /// Without the embedding: `input` is the output of the previous stage, and is copied unless it is
  /// state.input.data().
  const T* ForwardActivations(MicroBatchState<T>& state, const Pass& pass, const T* input);

  /// The sum of the token losses. Adds the gradient of the head's matrix; Backward will start from
  /// loss_scale times the sum's gradient.
  double HeadLoss(MicroBatchState<T>& state, std::span<const std::int32_t> targets,
                  double loss_scale);
  /// The same without any gradient.
  double HeadLoss(MicroBatchState<T>& state, std::span<const std::int32_t> targets);
  /// d_output is the gradient with respect to the output, or nullptr with the head; it may be
  /// state.output(). Adds to the gradients. Returns the gradient with respect to the input
  /// activations, valid until the next Backward on the same workspace.
  const T* Backward(MicroBatchState<T>& state, const T* d_output, const OnReady& on_ready = {},
                    const OnHeadReady& on_head_ready = {});
  // The halves of Backward, without recomputation. Sums have the same bits.

  /// All but the gradients of the blocks' products. What these need takes the place of activations
  /// in the state, and of its output.
  /// `on_input` as on_ready of Backward, but of what this half makes.
  const T* BackwardInput(MicroBatchState<T>& state, const T* d_output,
                         const OnReady& on_input = {});
  /// The rest, after any number of other passes. `on_ready` as for Backward.
  void BackwardWeight(MicroBatchState<T>& state, const OnReady& on_ready = {});

 private:
  /// How a block goes backward.
  using BlockBackward = void (TransformerBlock<T>::*)(const StageMemory<T>&, const Pass&, const T*,
                                                      BlockState<T>&, BlockWorkspace<T>&) const;
  const T* Backward(MicroBatchState<T>& state, const T* d_output, const OnReady& on_ready,
                    const OnHeadReady& on_head_ready, BlockBackward backward);
  std::int64_t Rows(const MicroBatchState<T>& state) const {
    return state.pass.batch * dims_.sequence;
  }
  StageMemory<T> Memory() const {
    return {device_, arenas_.parameters.data(), arenas_.gradients.data(), tensor_,
            options_.reproducible ? kTensorGroups / tensor_.part.ranks : 0};
  }
  // Blocks share rows if ranks do; embedding and head have all of them.
  bool SharesRows() const { return options_.row_ranks > 1; }
  StageMemory<T> BlockMemory(PassTimes* times = nullptr) const;
  ElementRange OwnRows(const MicroBatchState<T>& state) const {
    return BlockMemory().OwnRows(Rows(state));
  }
  /// All rows of what each rank has its own rows of; valid until the next pass through a block.
  T* Whole(const MicroBatchState<T>& state, T* own);
  /// Own rows of what is whole on each rank.
  void CopyOwn(const MicroBatchState<T>& state, const T* whole, T* own);
  /// `layer` counts embedding, blocks and head, even if the stage has none.
  void Need(std::size_t layer) const;
  void Ready(std::size_t layer, const OnReady& on_ready) const;
  void ForwardBlocks(MicroBatchState<T>& state);
  void HeadBackward(MicroBatchState<T>& state);
  Sum* TokenGradient(const OnHeadReady& on_head_ready) const;

  const ModelDims dims_;
  const StageSlice slice_;
  const StageOptions options_;
  kernels::Device<T>& device_;
  const StageArenas<T> arenas_;
  StageWorkspace<T>& workspace_;
  TensorRanks<T> tensor_;
  std::vector<LayerElements> layers_;
  OnNeeded on_needed_;

  std::optional<TokenEmbedding<T>> embedding_;
  std::vector<TransformerBlock<T>> blocks_;
  std::optional<LanguageHead<T>> head_;
};

}  // namespace adaptive_train
