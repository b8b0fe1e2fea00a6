// The training loop of one rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/config.h"
#include "core/plan.h"
#include "core/step_metrics.h"
#include "kernels/device.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/token_dataset.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/model/gpt.h"
#include "runtime/train/lr_schedule.h"

namespace adaptive_train {

/// What the trainer asks and tells outside of the numbers. Called on the trainer's thread.
struct TrainerEvents {
  std::function<bool()> stop_asked;             // save and stop
  std::function<bool()> take_checkpoint_asked;  // save and go on
  std::function<void(const RankMetrics&)> on_step;
  std::function<void(std::int64_t step, const std::string& path)> on_saved;
};

/// Trains the whole model on this rank's share of every global batch; gradients are summed over all
/// ranks, every rank makes the same update. Throws FatalError; nothing else leaves it. One thread.
class Trainer {
 public:
  /// All must outlive the trainer. config.data has been opened as `data`.
  Trainer(const Config& config, const Plan& plan, int rank, kernels::Device<float>& device,
          Communicator& communicator, const Datasets& data, TrainerEvents events);

  /// Takes up the newest checkpoint, on which all ranks must agree. Gives its step, 0 if there is
  /// none.
  std::int64_t Resume();
  /// Trains from there to train.steps, or until asked to stop; saves at the end. Gives the last
  /// step.
  std::int64_t Run();

 private:
  struct Clock;
  /// What all ranks must know after a step, as one sum.
  struct Totals {
    double loss = 0;
    bool stop = false;
    bool save = false;
  };

  double ForwardBackward(std::int64_t step, Clock& clock);
  Totals SumOverRanks(double loss, Clock& clock);
  void Update(RankMetrics& metrics);
  bool ValidationDue(std::int64_t step) const;
  double Validate();
  TrainingState State();
  void Save();
  void CheckReplicas();
  void LoadSamples(std::int64_t first, std::int64_t count);
  void Fill(RankMetrics& metrics);
  void Await(tl::expected<void, CommError> outcome) const;
  Deadline CommDeadline() const;

  const Config& config_;
  const Plan& plan_;
  const RankPlan& share_;
  kernels::Device<float>& device_;
  Communicator& communicator_;
  const Datasets& data_;
  const TrainerEvents events_;
  const ModelDims dims_;
  const ParameterLayout layout_;
  kernels::Buffer<float> parameters_, gradients_, first_moments_, second_moments_;
  GptStage<float> stage_;
  GradientReducer reducer_;
  const LrSchedule schedule_;
  const CheckpointFolder checkpoints_;
  const double product_peak_;
  const double flops_per_token_;
  std::vector<std::int32_t> tokens_, targets_;         // of one micro-batch
  std::array<std::int64_t, kPurposes> sent_before_{};  // byte counts at the end of the last step
  std::int64_t step_ = 0;                              // optimizer steps done
  std::int64_t updates_ = 0;                           // of those, without the skipped ones
  std::int64_t saved_step_ = -1;
};

/// The dimensions that a configuration asks for.
ModelDims DimsOf(const Config& config);

}  // namespace adaptive_train
