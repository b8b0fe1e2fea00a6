// When a run's state is saved and where it is taken up again: all ranks in step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/config.h"
#include "core/running_clock.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/comm/group.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/train/trainer.h"

namespace adaptive_train {

/// Every rank has the arenas of a part of the model and writes in the background its share of
/// parameters and moments, and all of its residuals where the arenas have some: an empty span says
/// that the run does not compress gradients, the same in all calls. Resume first; then in every
/// step Votes into the step's sum and Follow with the sum; Ask when a checkpoint is due, Begin
/// after Follow. Throws FatalError. One thread.
class Checkpointer {
 public:
  /// Votes that Follow takes, as many as CheckpointVotes has.
  static constexpr std::size_t kVotes = std::tuple_size_v<CheckpointVotes>;

  /// All that is passed by reference must outlive this. `group` are all ranks, `data` those that
  /// hold the same layout and share out writing it by the same rule: `share` is this rank's part of
  /// parameters and of each moment. `threads` copy the state. `text` is the training text's
  /// fingerprint.
  Checkpointer(const Config& config, const ParameterLayout& layout, ArenaShare share, Group& group,
               Group& data, const TrainerEvents& events, int threads, const std::string& text);

  /// Reads the newest checkpoint that holds into the arenas: `held` of parameters and moments, the
  /// rest of which is not touched; of residuals, this rank's part of
  /// their sum, see CheckpointReader::Read, and zeros where the checkpoint has none. A run that
  /// does not compress says that it drops them. Where there is no checkpoint, gives nothing and
  /// reads no more than the parameters of checkpoint.start. Names those that do not hold. Every
  /// rank verifies a part of the checkpoint. Settings that are not the checkpoint's are told; those
  /// of kOrderSettings make it refused, unless checkpoint.accept names them. `extra` of what is
  /// given has "samples", those that the run has done. The wait for each other ends where nothing
  /// is read for checkpoint.patience_s.
  /// Where `arenas` have no residuals, those of the checkpoint are read to the arena that
  /// `residuals_to_take` gives, which its owner adds to the next update; an empty one drops them.
  std::optional<CheckpointStep> Resume(
      const TrainingArenas& arenas, const ElementRanges& held,
      const std::function<std::span<float>()>& residuals_to_take = [] {
        return std::span<float>();
      });

  /// Instead of Resume, where the state of `step` came from elsewhere: nothing is read.
  void GoOnAfter(std::int64_t step, const TrainingArenas& arenas);
  /// The newest complete checkpoint by its name, the same on all ranks: nothing of it is looked at.
  std::optional<std::int64_t> NewestStep();

  /// A checkpoint is wanted: of this step, or of the next at which the writer is free.
  void Ask() { asked_ = true; }
  /// Whether one is, and the writer is free. After Follow it is the same on all ranks.
  bool Wanted() const { return asked_ && ready_; }
  CheckpointVotes Votes() const { return writer_->Votes(); }
  /// Tells of a checkpoint that is complete, or of one that failed: training goes on and the next
  /// one may succeed.
  void Follow(std::span<const double> votes);
  /// Copies the state, which is then written in the background. Only where a checkpoint is Wanted.
  void Begin(const CheckpointStep& at, const TrainingArenas& arenas);
  /// Saves this state and returns when it is on disk, unless it is there already. Throws on the
  /// rank that cannot write its part, and where nothing is written for checkpoint.patience_s.
  void SaveNow(const CheckpointStep& at, const TrainingArenas& arenas);
  /// Returns when nothing is being written any more, without another save. Throws where nothing is
  /// written for checkpoint.patience_s.
  void CompleteSave();
  /// The same two where ranks can exchange nothing any more: they agree by `sum`, which makes
  /// numbers[i] the sum over all ranks. Nothing else may be called afterwards.
  void SaveNowBy(std::function<void(std::span<double>)> sum, const CheckpointStep& at,
                 const TrainingArenas& arenas);
  void CompleteSaveBy(std::function<void(std::span<double>)> sum);

 private:
  CheckpointWriterSettings Settings(bool residuals) const;
  void MakeWriter(const TrainingArenas& arenas, std::set<std::int64_t> refused);
  std::optional<std::int64_t> Announce(std::optional<std::int64_t> step);
  Result<void> Verify(std::int64_t step);
  NewestCheckpoint FindNewest();
  Result<void> ExpectOrder(const CheckpointReader& reader) const;
  void TellOf(const NewestCheckpoint& newest);
  std::uint64_t DrawAttempt();
  CheckpointStep Read(std::int64_t step, const TrainingArenas& arenas, const ElementRanges& held,
                      const std::function<std::span<float>()>& residuals_to_take);
  void TellOfResiduals(std::int64_t step, std::int64_t elements, bool taken);
  CheckpointNews Exchange();
  /// Until the writer is free. Why this rank's last part could not be written, empty if it could.
  CheckpointNews Finish();
  void Tell(const CheckpointNews& news);

  const CheckpointConfig& config_;
  const std::chrono::seconds patience_;
  const ModelDims dims_;
  const ParameterLayout& layout_;
  const ArenaShare share_;
  Group& group_;
  Group& data_;
  const TrainerEvents& events_;
  const int threads_;
  const CheckpointFolder folder_;
  const std::int64_t global_batch_;
  const CheckpointSettings run_settings_;
  const CheckpointOwner owner_;
  std::function<void(std::span<double>)> sum_;  // of votes outside of a step
  std::unique_ptr<CheckpointWriter> writer_;    // from Resume on
  bool asked_ = false;
  bool ready_ = true;
  std::int64_t saved_step_ = -1;
  RunningClock::time_point begun_;  // the last snapshot
};

/// What a run's checkpoints must agree in to be taken up, in words.
std::string CheckpointIdentity(const Config& config);
/// What a run's checkpoints tell of it besides; `data` is the training text's fingerprint.
CheckpointSettings SettingsOf(const Config& config, const std::string& data);
/// Whose they are; `settings` are the run's.
CheckpointOwner OwnerOf(const Config& config, const CheckpointSettings& settings);

}  // namespace adaptive_train
