// Which bytes of which shards go where in a rank's arenas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_index.h"

namespace adaptive_train {

/// Who reads: the blocks of a rank's arenas, and those elements of them that it wants of the arenas
/// before kResiduals. It is rank `rank` of `ranks` that hold the same blocks.
struct ReadingRank {
  std::vector<ParameterBlock> blocks;
  ElementRanges ranges;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;

  /// A rank that wants all of a layout.
  static ReadingRank OfAll(const ParameterLayout& layout, std::int64_t rank = 0,
                           std::int64_t ranks = 1) {
    return {BlocksOf(layout), {{0, layout.size()}}, rank, ranks};
  }
};

/// What one shard has for a reader.
class ShardTransfers {
 public:
  /// The blocks of kCheckpointBlockBytes of the shard's bytes that are needed, ascending.
  std::vector<std::size_t> Blocks() const;
  /// Puts what of a block is needed where it belongs. Each block once.
  void Put(std::size_t block, std::span<const std::byte> content) const;

 private:
  friend class StateTransfers;
  /// What happens to the bytes of a shard, whole floats, where they arrive in an arena's memory.
  using Arrive = void (*)(kernels::DeviceMemory& memory, float* to,
                          std::span<const std::byte> from);
  /// Bytes of a shard that go to memory.
  struct Transfer {
    std::int64_t begin;  // in the shard
    std::int64_t end;
    float* to;
    Arrive arrive;
  };

  kernels::DeviceMemory* memory_ = nullptr;
  std::vector<Transfer> transfers_;  // ascending in the shard, without overlaps
};

/// For shards that were checked by CheckCoverage: their blocks of bytes, from whatever place they
/// come, are put into a reader's arenas, shard by shard in the order of their numbers. Elements of
/// parameters and moments outside of the reader's ranges are not touched, an empty arena is left
/// out. Residuals come to the whole arena: the sum in float32 of those of the reader's part of the
/// shards, see Of. Not thread-safe; one object a thread.
class StateTransfers {
 public:
  /// Fails where the arenas do not fit the reader's blocks. Clears the residuals: what comes to them
  /// is the sum of shards rank, rank + ranks, rank + 2 ranks and so on, in this order and counted
  /// among the shards of the same arena. So the ranks together get all of them, and as many ranks
  /// as made the shards each get their own back, bit for bit. What is passed by reference must
  /// outlive this.
  static Result<StateTransfers> Of(const std::vector<CheckpointParameter>& parameters,
                                   const std::vector<ShardIndex>& indices,
                                   const ReadingRank& reading, const TrainingArenas& arenas);

  /// Of the next shard, from 0 on.
  ShardTransfers Next();

 private:
  using Transfer = ShardTransfers::Transfer;

  StateTransfers(const std::vector<CheckpointParameter>& parameters,
                 const std::vector<ShardIndex>& indices, const TrainingArenas& arenas)
      : indices_(indices), places_(parameters), arenas_(arenas) {}

  std::vector<ArenaRun> RunsIn(const ShardIndex& index, std::size_t arena) const;

  const std::vector<ShardIndex>& indices_;
  ModelPlaces places_;
  TrainingArenas arenas_;
  std::vector<ArenaRun> wanted_, all_;  // by their places in the model
  std::int64_t rank_ = 0, ranks_ = 1;
  std::unordered_map<std::int64_t, std::int64_t> seen_;  // shards of each arena
  std::size_t next_ = 0;
};

}  // namespace adaptive_train
