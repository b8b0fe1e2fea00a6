// The order in which the links of an allocation are measured: rounds of disjoint pairs.
#pragma once

#include <vector>

#include "core/measure_order.h"

namespace adaptive_train {

using MeasureRounds = std::vector<std::vector<RankPair>>;

/// Every pair of `nodes` once, by the circle method: one node stays, the others rotate. This takes
/// nodes - 1 rounds. An odd number takes `nodes` rounds, and one node sits out in each.
MeasureRounds AllPairs(int nodes);

/// Each given pair once, in few rounds: a pair goes into the first round that contains neither of
/// its nodes.
MeasureRounds RoundsOf(const std::vector<RankPair>& pairs);

}  // namespace adaptive_train
