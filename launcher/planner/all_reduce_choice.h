// By which algorithm ranks sum their gradients, from what their links were measured to do.
#pragma once

#include <span>

#include "core/plan.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

enum class AllReduceWay { kRing, kDoubling, kHalving, kNodeFirst };

/// Seconds to sum `bytes` over ranks on these nodes (index = rank; a node stands for each of its
/// ranks). A message takes its link's latency, and its bytes at the link's speed over the number of
/// messages that leave or reach one of its ends from other nodes at once; a step takes as long as
/// its slowest message. Infinite where a message's link is not there, and for kNodeFirst where
/// nodes do not have equally many ranks, several each.
double AllReduceSeconds(AllReduceWay way, const LinkTable& links, std::span<const int> nodes,
                        double bytes);

/// A ring for all sizes, but for those that another way is predicted to sum in nine tenths of its
/// time or less. Sizes are powers of 4, so that what two measurements say alike gives one choice:
/// ways differ in the order of additions, and so in the last bits of sums. Ranks of one node keep
/// what AllReducePlan has by default.
AllReducePlan ChooseAllReduce(const LinkTable& links, std::span<const int> nodes);

}  // namespace adaptive_train
