// The training loop of one rank, for arrays of T.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/buddy/state_keeper.h"
#include "runtime/comm/groups.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/stage_runner.h"
#include "runtime/train/step_exchange.h"
#include "runtime/train/step_measure.h"
#include "runtime/train/step_update.h"
#include "runtime/train/tensor_sums.h"
#include "runtime/train/tied_embedding.h"
#include "runtime/train/trainer.h"
#include "runtime/train/unit_gradients.h"

namespace adaptive_train {

/// With float16 the loss is scaled.
template <class T>
class TrainingLoop final : public Trainer {
 public:
  TrainingLoop(const Config& config, const Plan& plan, int rank, Communicator& communicator,
               const Datasets& data, TrainerEvents events, const KeptRun& kept);

  std::string DeviceDescription() const override { return device_->Description(); }
  Resumed Resume() override;
  std::int64_t Run() override;

 private:
  /// What all ranks must know after a step, as one sum.
  struct Totals {
    double loss = 0;
    bool stop = false;
    bool unsaved = false;  // the stop
    bool end_round = false;
    bool save = false;
    bool profile = false;
    bool shares = false;               // all ranks know new ones
    std::vector<double> squares = {};  // StepUpdate::Squares
  };

  std::int64_t Train();
  bool Step();
  bool StepIntoNext();
  void Begin();
  void AwaitReports() const;
  void BeginSettling(double loss);
  void Settle();
  void BeginSettlingBefore();
  bool SettleBefore(std::int64_t step);
  bool StopUnsavedAsked() const;
  /// A state that is to be saved is one state of all replicas.
  bool Stops() const { return stop_asked_ && (one_state_ || unsaved_); }
  std::int64_t SaveWithoutExchange();
  Totals Agreed();
  void AppendLossesOfUnits();
  void TakeShares();
  bool Averages(bool end_round);
  void Save(bool asked);
  void KeepInMemory();
  std::optional<CheckpointStep> TakeUpFromMemory();
  KeptArena ArenaToKeep() const;
  double CountedOnce(double loss) const;
  double Validate();
  bool ValidationDueAfter(std::int64_t step) const;
  bool GoesOn(std::int64_t step) const;
  void CheckSameWeights();
  void Report(RankMetrics& metrics);
  double Targets() const;  // of a global batch
  void Tell(const CompressionDecision& decision);
  CheckpointStep At(const SumOfNumbers& sum) const;
  TrainingArenas Arenas() { return state_.OfCheckpoint(exchange_.Residuals()); }
  ArenaShare ShareOfCheckpoint() const;

  const Config& config_;
  Plan plan_;  // its shares may change
  const RankPlan& own_;
  const Datasets& data_;
  const TrainerEvents events_;
  const ModelDims dims_;
  const std::vector<StageSlice> slices_;  // chunks of the model
  const ParameterLayout layout_;
  Groups groups_;
  const std::unique_ptr<kernels::Device<T>> device_;
  RankState<T> state_;
  const std::unique_ptr<UnitGradients<T>> units_;  // none: the layout may change bits
  SampleLoader loader_;
  LayerProfiler profiler_;
  StepMeasure measure_;
  TensorSums<T> tensor_;
  TiedEmbedding<T> tied_;
  StepExchange<T> exchange_;
  StepUpdate<T> update_;
  StageRunner<T> runner_;
  Checkpointer checkpointer_;
  StateKeeper keeper_;
  const SumOfNumbers sum_;        // by the communicator
  double product_peak_;           // FLOP/s; raised by steps that are faster
  const double flops_per_token_;  // of this rank's stage
  bool profile_asked_ = false, stop_asked_ = false;
  bool unsaved_ = false;              // no other save is begun
  std::optional<Shares> new_shares_;  // until all ranks know them
  bool measured_ = false;             // the gradients of the step under way are looked at
  std::vector<double> sums_;          // of the agreement under way, in the order of its making
  std::size_t first_square_ = 0, first_unit_ = 0;  // of sums_
  Request agreement_;
  std::optional<PassMarks> marks_;        // of the step's passes, where there are other stages
  std::optional<double> exchanged_loss_;  // of a step whose exchange goes on beside the next one
  bool whole_ = true;         // arenas and all that a checkpoint keeps are those of step_
  bool one_state_ = true;     // of all replicas, after step_
  bool saving_ = false;       // the last state, which the checkpointer is in the middle of
  std::int64_t step_ = 0;     // optimizer steps done
  std::int64_t checked_ = 0;  // the last one after which replicas were compared
};

}  // namespace adaptive_train
