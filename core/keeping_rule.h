// Which rank keeps which part of the training state in memory that outlives it, so that no single
// node has the only copy of anything.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace adaptive_train {

/// A copy of the state is written beside the one before, which stays whole until it is complete.
inline constexpr int kKeptSlots = 2;

inline constexpr int kNoBuddy = -1;

/// What a rank keeps of an arena that it has in common with other ranks.
struct KeptPart {
  int arena_of = 0;         // the lowest of these ranks
  int cover = 0;            // several sets of places may each hold all of the arena
  std::int64_t place = 0;   // of this rank in the set
  std::int64_t places = 1;  // of the set
  int buddy = kNoBuddy;     // a rank on another node, which keeps the part too
};

struct KeptParts {
  KeptPart state;      // parameters and moments: the place's elements
  KeptPart residuals;  // of compressed gradients, each rank's own: all of the arena
};

/// Of every rank, by the plan alone, the same on all. State that replicas have on two nodes or more
/// is kept by each of these nodes, whose ranks share it out: nothing is sent. What one node alone
/// has goes to a buddy as well. Buddies are spread evenly, one node for each, and on another switch
/// as far as the nodes' switches allow: the ranks of a node have theirs half of all nodes further on
/// in the order of switches. Where no switch is known that is the order of the ranks, in which another
/// one is likely.
std::vector<KeptParts> KeptPartsOf(const Plan& plan);

/// Whether replicas share moments and float32 parameters out over the group.
bool SharesOutState(const Plan& plan);

}  // namespace adaptive_train
