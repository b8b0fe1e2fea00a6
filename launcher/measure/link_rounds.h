// In which order the links of an allocation are measured: rounds of disjoint pairs.
#pragma once

#include <vector>

#include "core/measure_order.h"

namespace adaptive_train {

using MeasureRounds = std::vector<std::vector<RankPair>>;

/// Every pair of `nodes` once, in nodes - 1 rounds (nodes rounds where their number is odd: one
/// sits out in each), by the circle method: one stands still, the others walk round.
MeasureRounds AllPairs(int nodes);

/// The given pairs, each once, in few rounds: a pair goes to the first round that has neither of
/// its ends yet.
MeasureRounds RoundsOf(const std::vector<RankPair>& pairs);

}  // namespace adaptive_train
