// The newest state that is whole in the memory of the nodes that are left, taken up by ranks in any
// layout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/buddy/inventory.h"
#include "runtime/buddy/kept_run.h"
#include "runtime/buddy/kept_slot.h"
#include "runtime/checkpoint/state_transfers.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// One restore. All ranks call the same; blocks; throws FatalError where communication fails. The
/// first rank of each node tells what its node has; every rank reads what its own node has by itself,
/// and is sent the rest block by block, so that no node holds more of the model than its ranks' parts.
class StateRestorer {
 public:
  /// `folder` is the one of this rank's node, empty if there is none. What is passed by reference
  /// must outlive this.
  StateRestorer(const KeptRun& run, const Plan& plan, std::string folder,
                const std::vector<CheckpointParameter>& parameters, Group& world,
                std::function<void(const std::string& line)> on_notice);

  /// Puts the newest whole state up to the run's committed step into the arenas, as
  /// CheckpointReader::Read does. `least` is the newest checkpoint's step: older states are not taken,
  /// unless it is newer than the committed step. Where no such state is found, and the run has
  /// committed more than `least`, the oldest newer one is taken: its steps are not lost, though what
  /// they reported may be. Without residuals in the arenas, those of the state go where
  /// `residuals_to_take` says; an empty span drops them. Gives what the state is, or nothing where
  /// there is none: the arenas may then hold anything. A state that turns out to be torn is named and
  /// the one before is tried. On success what is older is removed.
  std::optional<CheckpointStep> Restore(std::int64_t least, const ReadingRank& reading,
                                        const TrainingArenas& arenas,
                                        const std::function<std::span<float>()>& residuals_to_take);

 private:
  std::vector<KeptEntry> Found() const;
  std::vector<FoundState> States();
  std::vector<KeptShard> Describe(const FoundState& state);
  Result<CheckpointStep> Read(const FoundState& state, const ReadingRank& reading,
                              const TrainingArenas& arenas,
                              const std::function<std::span<float>()>& residuals_to_take);
  bool IsHere(const FoundShard& shard) const;
  Result<void> ReadHere(const FoundState& state, const std::vector<ShardIndex>& indices,
                        const std::vector<ShardTransfers>& transfers) const;
  Result<void> ReadFromOthers(const FoundState& state, const std::vector<ShardIndex>& indices,
                              const std::vector<ShardTransfers>& transfers);
  std::vector<std::vector<bool>> Wishes(const std::vector<std::size_t>& blocks, std::size_t all);
  void SendBlocks(const FoundShard& shard, const std::vector<std::vector<bool>>& wishes);
  Result<void> ReceiveBlocks(int holder, const ShardIndex& index, const ShardTransfers& transfers);

  const KeptFile& Opened(const FoundShard& shard) const {
    return files_.at(shard.entry.FileName());
  }

  const KeptRun& run_;
  const std::string folder_;
  const std::vector<CheckpointParameter>& parameters_;
  Group& world_;
  const std::function<void(const std::string&)> on_notice_;
  const int first_on_node_;
  std::map<std::string, KeptFile> files_;  // that this rank has told the others of
};

}  // namespace adaptive_train
