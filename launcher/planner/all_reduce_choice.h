// Chooses the all-reduce algorithm for gradients from the measured links.
#pragma once

#include <span>

#include "core/plan.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

enum class AllReduceWay { kRing, kDoubling, kHalving, kNodeFirst };

/// Seconds to sum `bytes` over ranks on these nodes (index = rank; several ranks may share a node).
/// A message takes its link's latency plus its bytes at a share of the link's speed. The share
/// counts the messages that leave or enter one of its end nodes at the same time. A step takes as
/// long as its slowest message. Infinite if a link is missing, and for kNodeFirst unless all nodes
/// have equally many ranks, at least two.
double AllReduceSeconds(AllReduceWay way, const LinkTable& links, std::span<const int> nodes,
                        double bytes);

/// A ring, except for sizes that another way is predicted to sum in at most nine tenths of its
/// time. Sizes are powers of 4, so that measurements that agree lead to the same choice: each way
/// adds in another order, which changes the last bits of sums. Ranks of one node keep the default
/// of AllReducePlan.
AllReducePlan ChooseAllReduce(const LinkTable& links, std::span<const int> nodes);

}  // namespace adaptive_train
