// Whether the shards of a checkpoint fit together.
#pragma once

#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_index.h"

namespace adaptive_train {

/// Fails unless the shards hold every element of every parameter exactly once in each arena but
/// that of residuals, of which a shard may hold any elements of any parameter, once. Takes time by
/// blocks and buckets and memory by blocks, however many ranks share an arena. The message names
/// parameter, elements and shards. Indices in the order of their numbers; they are consistent in
/// themselves, see ParseIndex, and may otherwise say anything.
Result<void> CheckCoverage(const std::vector<CheckpointParameter>& parameters,
                           const std::vector<ShardIndex>& indices);

}  // namespace adaptive_train
