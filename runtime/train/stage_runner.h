// Runs a rank's schedule: forwards, backwards and messages in the order that it says.
#pragma once

#include <cstdint>
#include <functional>
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
  /// Of the schedule. Without a flush: a first step, one like all that follow, and a last one.
  int steps = 1;
};

/// What a rank does for the step before while it runs one, where steps go on into each other. Both
/// are called once in every step, in this order.
struct WithinStep {
  std::function<void()> halfway;  // to where the update of the step before is needed
  /// Before all of the next step; gives whether that may begin. The step before is over then: its
  /// update is made, unless it was made before this step began.
  std::function<bool()> before_next;
};

/// Of a step, by its StepMeasure.
struct PassMarks {
  double opening_comm_s = 0;  // of exposed communication, up to the end of the first pass
  double passed_s = 0;        // since the step's begin, at the end of the last pass
};

/// Owns the activations: of each chunk as many micro-batches' states as the schedule has in flight,
/// one workspace for all, and what crosses the boundaries to other stages. Without a flush, the
/// first micro-batches of the next step go forward in a step: they read the weights of the update
/// that WithinStep has made, and the step itself those before, the older ones from then on. Not
/// thread-safe. What is passed by reference must outlive this.
template <class T>
class StageRunner {
 public:
  /// The state's layout has all chunks; without a flush it has older weights, and there is one
  /// chunk. `embedding_part` as in StageArenas. Throws FatalError where CheckSchedule finds a fault
  /// in the schedule, and std::bad_alloc.
  StageRunner(const StageWork& work, const RankPlan& own, Group& pipeline, RankState<T>& state,
              SampleLoader& loader, LayerProfiler& profiler, StepMeasure& measure,
              const TensorRanks<T>& tensor = {}, std::span<float> embedding_part = {});

  /// Between steps: another share, with its schedule, that needs no more room (FixedShares); where
  /// steps do not go on into each other. Throws FatalError.
  void TakeShare(const RankPlan& own, Schedule schedule);

  /// As TransformerStage says, of the newest weights.
  void BeforeReading(const OnNeeded& on_needed);

  /// Adds the gradients of this rank's samples of the step, times scale, and hands them to the
  /// exchange as they become final. Gives the sum of the token losses, 0 without the head. All
  /// ranks of a pipeline call it, and Loss, in the same order. Without a flush there is a `within`.
  /// Throws FatalError.
  double Run(std::int64_t step, double scale, StepExchange<T>& exchange,
             const WithinStep& within = {});
  /// Of the last Run.
  const PassMarks& Marks() const { return marks_; }
  /// Whether stages next to each other are on different ranks.
  bool HasOthers() const { return schedule_.ranks.size() > 1; }
  /// Whether steps can go on into each other.
  bool CanGoOn() const { return rows_.size() > 1; }
  /// Whether the next step has begun.
  bool HasGoneOn() const { return gone_on_; }
  /// Of the last Run, the same for each micro-batch by itself.
  std::span<const double> Losses() const { return losses_; }

  /// Between steps, where the next has not begun: the sum of the token losses of up to a micro-batch
  /// of samples, without dropout; 0 without the head.
  double Loss(const Samples& samples);

  /// Of the device's memory.
  std::size_t activation_bytes() const;

 private:
  struct MicroBatch {
    std::int64_t first_sample = 0;  // of the global batch
    std::int64_t samples = 0;
  };
  struct Chunk {
    TransformerStage<T> stage;                 // with the newest weights
    std::optional<TransformerStage<T>> older;  // with those before, where there are two versions
    std::vector<MicroBatchState<T>> states;
  };

  bool IsOfNextStep(const Action& action) const {
    return static_cast<std::size_t>(action.micro_batch) >= micro_batches_.size();
  }
  const MicroBatch& MicroBatchOf(const Action& action) const {
    return micro_batches_[static_cast<std::size_t>(action.micro_batch) % micro_batches_.size()];
  }
  TransformerStage<T>& StageOf(const Action& action) {
    Chunk& chunk = chunks_[ChunkOf(action)];
    return older_ && !IsOfNextStep(action) ? *chunk.older : chunk.stage;
  }
  /// In flight at the same time are no more than there are, and one after another.
  MicroBatchState<T>& StateOf(std::size_t chunk, const Action& action) {
    std::vector<MicroBatchState<T>>& states = chunks_[chunk].states;
    return states[(first_ + static_cast<std::size_t>(action.micro_batch)) % states.size()];
  }
  void SetMicroBatches(const RankPlan& own);
  double Forward(const Action& action, std::int64_t step, double scale);
  Samples Load(const Action& forward, std::int64_t step);
  /// What a forward or backward reads of another rank. Valid until it is released.
  const T* Receive(const Action& compute) {
    return reinterpret_cast<const T*>(boundary_.Take(ReceiveOf(compute)));
  }
  /// For Loss: forward through one chunk. Gives its output.
  const T* ForwardOnly(std::size_t chunk, const Samples& samples, const T* before);
  bool IsReduced(const Action& backward) const;
  /// Of whole activations, or of own rows where tensor ranks share them.
  std::size_t BoundaryBytes(std::int64_t samples) const {
    const std::int64_t rows = samples * dims_.sequence;
    const std::int64_t own = options_.row_ranks > 1 ? part_.Of(rows).size() : rows;
    return static_cast<std::size_t>(own * dims_.hidden) * sizeof(T);
  }
  std::size_t BoundaryBytes(const Action& action) const {
    return BoundaryBytes(MicroBatchOf(action).samples);
  }
  std::size_t ChunkOf(const Action& action) const {
    return static_cast<std::size_t>(action.stage) / schedule_.ranks.size();
  }
  double Compute(const Action& action, std::int64_t step, double scale, StepExchange<T>& exchange);
  void Backward(const Action& action, StepExchange<T>& exchange);
  void EndMicroBatch(StepExchange<T>& exchange);
  bool GoesOn(const WithinStep& within);
  void EndStep(bool goes_on);

  const ModelDims dims_;
  const StageOptions options_;
  const TensorPart part_;
  Schedule schedule_;
  const int rank_;  // in the pipeline
  /// This rank's row: of a step; without a flush, of the first one and of those that follow.
  std::vector<std::vector<Action>> rows_;
  std::vector<MicroBatch> micro_batches_;
  std::vector<double> losses_;  // [micro_batches]
  PassMarks marks_;
  kernels::Device<T>& device_;
  SampleLoader& loader_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  StageBoundary boundary_;
  StageWorkspace<T> workspace_;
  std::vector<Chunk> chunks_;
  bool gone_on_ = false;       // the next step's first micro-batches are in flight
  bool older_ = false;         // are the weights that the step reads
  Action halfway_;             // of the step, before the next one: a forward
  std::size_t first_ = 0;      // micro-batches of all steps before
  std::optional<bool> ended_;  // a micro-batch whose gradients are complete: is it the last?
  const T* made_ = nullptr;    // by the last forward or backward: what its send takes
};

}  // namespace adaptive_train
