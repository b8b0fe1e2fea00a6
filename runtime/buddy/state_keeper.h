// Copies of a run's state in memory that outlives its ranks, made after optimizer steps.
//
// Each rank writes its part of the state (core/keeping_rule.h) to shared memory of its node, and
// sends what no other node has to its buddy, which writes it to its own. There are two slots, which
// are written in turn. A step's sum needs all ranks, and a rank comes to it when its copies are
// whole: so the copy before is whole everywhere as long as one is being written.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/keeping_rule.h"
#include "core/kept_folder.h"
#include "runtime/buddy/copy_interval.h"
#include "runtime/buddy/kept_run.h"
#include "runtime/buddy/kept_shard.h"
#include "runtime/buddy/kept_slot.h"
#include "runtime/buddy/state_restorer.h"
#include "runtime/checkpoint/arena_copy.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// What a rank has of the state.
struct KeptArena {
  std::vector<ParameterBlock> blocks;
  std::vector<CheckpointParameter> parameters;  // of the whole model
  std::int64_t elements = 0;                    // of the arena
  /// This rank's part of moments and float32 parameters where the group shares them out.
  std::optional<ArenaShare> share;
};

/// One thread, the rank's main thread. All ranks call the same, at the same steps.
class StateKeeper {
 public:
  using OnNotice = std::function<void(const std::string& line)>;

  /// Does nothing, ever, where the plan or `run` says so. `world` and the plan must outlive this.
  StateKeeper(KeptRun run, const Plan& plan, KeptArena arena, int threads, Group& world,
              OnNotice on_notice);

  /// Whether an earlier launch of the run may have left a state. The same on all ranks.
  bool CanRestore() const { return on_ && run_.committed.has_value(); }
  /// See StateRestorer::Restore. Before the first step.
  std::optional<CheckpointStep> Restore(std::int64_t least, const ReadingRank& reading,
                                        const TrainingArenas& arenas,
                                        const std::function<std::span<float>()>& residuals_to_take);

  /// After each step, which took `step_s`, with the state whole: copies it where that is due, and
  /// replicas have `one_state`, the same on all ranks.
  /// `describe` is asked only then. Blocks until the copy is whole on this rank's node and, as far
  /// as it is sent, on its buddy's. An empty span of residuals says that there are none, the same in
  /// all calls. Where a node has not the memory, a line says so and nothing is kept from then on.
  /// Throws FatalError where communication fails.
  void AfterStep(double step_s, bool one_state, const std::function<CheckpointStep()>& describe,
                 const ConstTrainingArenas& arenas);

  /// The run's state is elsewhere: removes what is kept on this rank's node. Blocks.
  void Remove();

 private:
  struct Outgoing {
    KeptShard shard;
    ArenaCopy copy;
    int buddy = kNoBuddy;
    std::vector<KeptSlot> slots = {};
  };
  struct Incoming {
    int from = 0;
    KeptEntry entry;
    std::vector<KeptSlot> slots = {};
  };

  void Describe(bool residuals);
  void AddOutgoing(KeptKind kind, const KeptPart& part, ArenaShare share, bool residuals);
  bool MakeSlots(const CheckpointStep& at);
  Result<void> MakeOwnSlots(int slot, const CheckpointStep& at, std::vector<double>& sizes);
  Result<void> MakeBuddySlots(int slot, const std::vector<double>& sizes);
  void Copy(const CheckpointStep& at, const ConstTrainingArenas& arenas);
  void Fill(Outgoing& part, KeptSlot& slot, const CheckpointStep& at,
            const ConstTrainingArenas& arenas) const;
  void RemoveEarlierAttempts() const;
  void Decide();
  bool GivesUp(const Result<void>& made);

  const KeptRun run_;
  const Plan& plan_;
  const KeptArena arena_;
  const int threads_;
  Group& world_;
  const OnNotice on_notice_;
  bool on_;
  std::string trouble_;  // why there is no folder
  std::optional<KeptFolder> folder_;
  std::vector<KeptParts> parts_;  // of all ranks
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  CopyInterval interval_;
  std::int64_t copies_ = 0;
  double kept_bytes_ = 0, sent_bytes_ = 0;  // of a copy, of all ranks
  double cpu_s_ = 0;                        // processor seconds since the last decision
  std::int64_t cpu_copies_ = 0;
};

}  // namespace adaptive_train
