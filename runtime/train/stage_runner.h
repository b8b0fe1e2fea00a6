// Runs a rank's schedule: forwards, backwards and messages in the order that it says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/plan.h"
#include "core/schedule/schedule.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/stage_boundary.h"
#include "runtime/train/step_exchange.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// What a rank computes of the model, and in which order in each step.
struct StageWork {
  ModelDims dims;  // of this tensor rank's part
  StageOptions options;
  /// This rank's stages of the schedule, ascending. Without a pipeline each begins where the one
  /// before ends.
  std::vector<StageSlice> chunks;
  /// Of all ranks of the pipeline, with reduces, steps, sends and receives (WithPasses). A chunk's
  /// gradients go to the exchange with the micro-batch that its reduce names. The first chunk's
  /// last backward is the last one of its rank.
  Schedule schedule;
};

/// Owns the activations: of each chunk as many micro-batches' states as the schedule has in flight,
/// one workspace for all, and what crosses the boundaries to other stages. Not thread-safe. What is
/// passed by reference must outlive this.
template <class T>
class StageRunner {
 public:
  /// The state's layout has all chunks. `embedding_part` as in StageArenas. Throws FatalError where CheckSchedule finds a fault in the
  /// schedule, and std::bad_alloc.
  StageRunner(const StageWork& work, const RankPlan& own, Group& pipeline, RankState<T>& state,
              SampleLoader& loader, LayerProfiler& profiler, StepMeasure& measure,
              const TensorRanks<T>& tensor = {}, std::span<float> embedding_part = {});

  /// As TransformerStage says.
  void BeforeReading(const OnNeeded& on_needed);

  /// Adds the gradients of this rank's samples of the step, times scale, and hands them to the
  /// exchange as they become final. Gives the sum of the token losses, 0 without the head. All
  /// ranks of a pipeline call it, and Loss, in the same order. Throws FatalError.
  double Run(std::int64_t step, double scale, StepExchange<T>& exchange);
  /// Of the last Run, the same for each micro-batch by itself.
  std::span<const double> Losses() const { return losses_; }

  /// Between steps: the sum of the token losses of up to a micro-batch of samples, without dropout;
  /// 0 without the head.
  double Loss(const Samples& samples);

  /// Of the device's memory.
  std::size_t activation_bytes() const;

 private:
  struct MicroBatch {
    std::int64_t first_sample = 0;  // of the global batch
    std::int64_t samples = 0;
  };
  struct Chunk {
    TransformerStage<T> stage;
    std::vector<MicroBatchState<T>> states;
  };

  /// In flight at the same time are no more than there are, and one after another.
  MicroBatchState<T>& StateOf(std::size_t chunk, std::size_t micro_batch) {
    std::vector<MicroBatchState<T>>& states = chunks_[chunk].states;
    return states[micro_batch % states.size()];
  }
  double Forward(const Action& action, std::int64_t step, double scale);
  Samples Load(const StageSlice& slice, std::int64_t step, const MicroBatch& micro_batch);
  /// What a forward or backward reads of another rank. Valid until it is released.
  const T* Receive(const Action& compute) {
    return reinterpret_cast<const T*>(boundary_.Take(ReceiveOf(compute)));
  }
  /// For Loss: forward through one chunk. Gives its output.
  const T* ForwardOnly(std::size_t chunk, const Samples& samples, const T* before);
  /// Whether stages next to each other are on different ranks.
  bool HasOthers() const { return schedule_.ranks.size() > 1; }
  bool IsReduced(const Action& backward) const;
  /// Of whole activations, or of own rows where tensor ranks share them.
  std::size_t BoundaryBytes(std::int64_t samples) const {
    const std::int64_t rows = samples * dims_.sequence;
    const std::int64_t own = options_.row_ranks > 1 ? part_.Of(rows).size() : rows;
    return static_cast<std::size_t>(own * dims_.hidden) * sizeof(T);
  }
  std::size_t BoundaryBytes(const Action& action) const {
    return BoundaryBytes(micro_batches_[static_cast<std::size_t>(action.micro_batch)].samples);
  }
  std::size_t ChunkOf(const Action& action) const {
    return static_cast<std::size_t>(action.stage) / schedule_.ranks.size();
  }
  double Compute(const Action& action, std::int64_t step, double scale, StepExchange<T>& exchange);
  void Backward(const Action& action, StepExchange<T>& exchange);
  void EndMicroBatch(StepExchange<T>& exchange);

  const ModelDims dims_;
  const StageOptions options_;
  const TensorPart part_;
  const Schedule schedule_;
  const int rank_;  // in the pipeline
  std::vector<MicroBatch> micro_batches_;
  std::vector<double> losses_;  // [micro_batches]
  kernels::Device<T>& device_;
  SampleLoader& loader_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  StageBoundary boundary_;
  StageWorkspace<T> workspace_;
  std::vector<Chunk> chunks_;
  std::optional<bool> ended_;  // a micro-batch whose gradients are complete: is it the last?
  const T* made_ = nullptr;    // by the last forward or backward: what its send takes
};

}  // namespace adaptive_train
