// The nominal speed between two nodes, from their network cards and switches.
#pragma once

#include "core/cluster.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Nominal speeds between all nodes from network cards and switches, with the pairs that the
/// cluster specifies replaced. Nodes whose switches have no common top are not connected: bandwidth
/// 0. An unknown path gets kAssumedNetwork or kAssumedInside, and `assumed` becomes true.
LinkTable NominalLinks(const Cluster& cluster, bool& assumed);

/// A gigabit card, and a copy between processes through memory.
inline constexpr LinkSpeed kAssumedNetwork{50e-6, 125e6};
inline constexpr LinkSpeed kAssumedInside{5e-6, 4e9};

}  // namespace adaptive_train
