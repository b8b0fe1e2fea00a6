// The training of one rank, in whatever precision the configuration asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/config.h"
#include "core/control_message.h"
#include "core/plan.h"
#include "core/plan_shares.h"
#include "core/step_metrics.h"
#include "runtime/buddy/kept_run.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/token_dataset.h"

namespace adaptive_train {

/// What the trainer asks and tells outside of the numbers. Called on the trainer's thread.
struct TrainerEvents {
  std::function<bool()> stop_asked;  // save and stop
  /// The stop is without another save: one that is under way is completed. Absent: it is not.
  std::function<bool()> stop_unsaved_asked;
  /// A round of local steps ends with the step under way. Absent: it has all its steps.
  std::function<bool()> end_round_asked;
  /// The exchange that has just failed was given up, so that what is there is saved.
  std::function<bool()> given_up;
  /// numbers[i] becomes the sum over all ranks, without the communicator. False: it does not.
  std::function<bool(std::span<double>)> sum_without_exchange;
  std::function<bool()> take_checkpoint_asked;  // save and go on
  std::function<bool()> take_profile_asked;     // measure the layers once more
  /// Before each step: the share of its speed at which this rank is to compute in it. Absent: 1.
  std::function<double(std::int64_t step)> begin_step;
  /// Whether writing the state after this step is to fail. Absent: it is not.
  std::function<bool(std::int64_t step)> save_fails;
  /// The next shares that all ranks are asked to take up, if any.
  std::function<std::optional<Shares>()> take_new_shares;
  std::function<void(const RankMetrics&)> on_step;
  /// Blocks until what on_step was told has left this process, or the launcher must have given it up.
  /// Absent: on_step is told at once.
  std::function<void()> await_reports;
  std::function<void(const LayerTimes&)> on_layer_times;
  std::function<void(const Saving&)> on_saving;  // on rank 0 only, while ranks wait for the disk
  std::function<void(const Saved&)> on_saved;
  std::function<void(const std::string& line)> on_notice;  // for the person who watches
  std::function<void(const Decision&)> on_decision;        // on one rank of those that decided
};

/// Trains this rank's stage of the model on its share of every global batch; gradients are summed
/// over the stage's replicas, which make the same update. Throws FatalError, and what a device or a lack of
/// memory throws. One thread.
class Trainer {
 public:
  /// Makes the device of plan.ranks[rank] and all arenas. What is passed by reference must outlive
  /// the trainer; config.data has been opened as `data`. `kept` is the run whose state is kept in
  /// memory.
  static std::unique_ptr<Trainer> Make(const Config& config, const Plan& plan, int rank,
                                       Communicator& communicator, const Datasets& data,
                                       TrainerEvents events, const KeptRun& kept = {});
  virtual ~Trainer() = default;

  /// One line for people: what computes.
  virtual std::string DeviceDescription() const = 0;
  /// Takes up the newest state, the same on all ranks: one that is whole in memory, or the newest
  /// checkpoint that holds; those that do not are named by on_notice. Step 0: there is none.
  virtual Resumed Resume() = 0;
  /// Trains from there to train.steps, or until asked to stop; saves at the end, unless asked not to.
  /// Gives the last step. An exchange that is given up ends it too: the last step's state is saved where all ranks
  /// still hold it whole. Otherwise that is a FatalError.
  virtual std::int64_t Run() = 0;
};

}  // namespace adaptive_train
