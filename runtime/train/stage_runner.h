// Runs a rank's schedule: forward and backward of each micro-batch in the order that it says.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pipeline_schedule.h"
#include "core/plan.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/step_exchange.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// What a rank computes of the model, and in which order in each step.
struct StageWork {
  ModelDims dims;
  StageOptions options;
  /// From the embedding to the head, each beginning where the one before ends.
  std::vector<StageSlice> chunks;
  /// Each chunk's micro-batches go backward in the order in which they went forward, and backward
  /// through the last chunk first.
  std::vector<ScheduledAction> schedule;
};

/// Owns the activations: of each chunk as many micro-batches' states as the schedule has in flight,
/// and one workspace for all. Not thread-safe. What is passed by reference must outlive this.
template <class T>
class StageRunner {
 public:
  /// The state's layout has all chunks. Throws std::bad_alloc.
  StageRunner(const StageWork& work, const RankPlan& own, RankState<T>& state, SampleLoader& loader,
              LayerProfiler& profiler, StepMeasure& measure);

  /// As TransformerStage says.
  void BeforeReading(const OnNeeded& on_needed);

  /// Adds the gradients of this rank's samples of the step, times scale, and hands them to the
  /// exchange as they become final. Gives the sum of the token losses.
  double Run(std::int64_t step, double scale, StepExchange<T>& exchange);

  /// Between steps: the sum of the token losses of up to a micro-batch of samples, without dropout.
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
  double Forward(const ScheduledAction& action, std::int64_t step, double scale);
  void Backward(const ScheduledAction& action, StepExchange<T>& exchange);

  const StageOptions options_;
  const std::vector<ScheduledAction> schedule_;
  std::vector<MicroBatch> micro_batches_;
  kernels::Device<T>& device_;
  SampleLoader& loader_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  StageWorkspace<T> workspace_;
  std::vector<Chunk> chunks_;
};

}  // namespace adaptive_train
