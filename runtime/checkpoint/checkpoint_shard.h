// The two halves of making a checkpoint: every rank writes its shard, then one makes the checkpoint
// of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_index.h"

namespace adaptive_train {

/// Writes shard `number` of index.step into the folder in which the attempt's checkpoint grows,
/// which it makes where it is missing. `bytes` are what the index says, in its order; its hashes
/// are filled in here. Between blocks it asks `stop`. On failure the shard's files are removed.
/// Blocks.
Result<void> WriteShard(const CheckpointFolder& folder, std::uint64_t attempt, std::size_t number,
                        ShardIndex index, std::span<const std::byte> bytes,
                        const std::function<bool()>& stop);

/// Removes shard `number` and the growing folder with the last of them. Blocks.
void RemoveShard(const CheckpointFolder& folder, std::uint64_t attempt, std::int64_t step,
                 std::size_t number);

/// Checks that shards 0 to shards - 1 of this step cover the owner's parameters, writes
/// manifest.json and DONE and gives the folder its name. A folder that has that name already was
/// refused when the run began, or the run would be past it: it is renamed, to NAME.aside-N. On
/// failure nothing has the checkpoint's name. Blocks.
Result<void> CommitShards(const CheckpointFolder& folder, std::uint64_t attempt,
                          const CheckpointStep& at, const CheckpointOwner& owner,
                          std::size_t shards);

}  // namespace adaptive_train
