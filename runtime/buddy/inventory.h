// Which states are complete in the memory of the nodes that are left.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/buddy/kept_shard.h"

namespace adaptive_train {

/// A kept part and who can read it.
struct FoundShard {
  KeptEntry entry;
  std::vector<int> holders;  // ranks, ascending: one of each node that has it
};

/// All that a state needs, each part once: parameters and moments first, then residuals, each in the
/// order of arenas and places.
struct FoundState {
  std::int64_t attempt = 0;
  std::int64_t step = 0;
  std::vector<FoundShard> shards;
};

/// The states of which nothing is missing, newest first: those of a later attempt go before those of
/// an earlier one, which training has left. `of[rank]` is what that rank has found on its node; ranks
/// that found nothing have none. The entries may say anything; whether the shards fit together is
/// CheckCoverage's.
std::vector<FoundState> CompleteStates(const std::vector<std::vector<KeptEntry>>& of);

/// In the order in which they are tried. Steps that are newer than `committed` were made, but not
/// told: they come last, so that nothing is lost where both slots are newer.
std::vector<FoundState> InTurn(std::vector<FoundState> states, std::int64_t committed);

}  // namespace adaptive_train
