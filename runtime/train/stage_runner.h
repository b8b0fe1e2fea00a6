// Runs a rank's schedule: forward and backward of each micro-batch in the order that it says.
#pragma once

#include <cstdint>
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
  /// Each beginning where the one before ends. Without a pipeline from the embedding to the head.
  std::vector<StageSlice> chunks;
  /// Each chunk's micro-batches go backward in the order in which they went forward, and backward
  /// through the last chunk first.
  std::vector<Action> schedule;
};

/// Owns the activations: of each chunk as many micro-batches' states as the schedule has in flight,
/// one workspace for all, and what crosses the boundaries to other stages. Not thread-safe. What is passed by reference must outlive this.
template <class T>
class StageRunner {
 public:
  /// The state's layout has all chunks. Throws std::bad_alloc.
  StageRunner(const StageWork& work, const RankPlan& own, Group& pipeline, RankState<T>& state,
              SampleLoader& loader, LayerProfiler& profiler, StepMeasure& measure,
              const TensorRanks<T>& tensor = {});

  /// As TransformerStage says.
  void BeforeReading(const OnNeeded& on_needed);

  /// Adds the gradients of this rank's samples of the step, times scale, and hands them to the
  /// exchange as they become final. Gives the sum of the token losses, 0 without the head. All
  /// ranks of a pipeline call it, and Loss, in the same order. Throws FatalError.
  double Run(std::int64_t step, double scale, StepExchange<T>& exchange);

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
  const T* ReceiveInput() { return reinterpret_cast<const T*>(boundary_.ReceiveInput()); }
  std::size_t BoundaryBytes(std::int64_t samples) const {
    return static_cast<std::size_t>(samples * dims_.sequence * dims_.hidden) * sizeof(T);
  }
  bool IsLast(std::size_t chunk) const { return chunk + 1 == chunks_.size(); }
  void Backward(const Action& action, StepExchange<T>& exchange);

  const ModelDims dims_;
  const StageOptions options_;
  const std::vector<Action> schedule_;
  const int ranks_;  // of the pipeline
  std::vector<MicroBatch> micro_batches_;
  std::vector<std::size_t> boundary_bytes_;  // [micro_batches_]
  kernels::Device<T>& device_;
  SampleLoader& loader_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  StageBoundary boundary_;
  StageWorkspace<T> workspace_;
  std::vector<Chunk> chunks_;
};

}  // namespace adaptive_train
