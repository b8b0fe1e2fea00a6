// What the makers of cards and switches promise of the way between two nodes.
#pragma once

#include "core/cluster.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Speeds between all nodes from network cards and switches alone, the pairs that the cluster names
/// itself replaced. Nodes whose switches have no common top are not connected: bandwidth 0. Where
/// nothing is known of a way, kAssumedNetwork and kAssumedInside stand in, and `assumed` becomes
/// true.
LinkTable NominalLinks(const Cluster& cluster, bool& assumed);

/// A gigabit card; what a processor passes to another process through memory.
inline constexpr LinkSpeed kAssumedNetwork{50e-6, 125e6};
inline constexpr LinkSpeed kAssumedInside{5e-6, 4e9};

}  // namespace adaptive_train
