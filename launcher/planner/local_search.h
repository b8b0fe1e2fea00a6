// Improves a placement step by step: moves cuts, swaps groups between places and with idle ones,
// swaps stages.
#pragma once

#include "launcher/planner/arrangement.h"

namespace adaptive_train {

/// Improves the arrangement until no single change helps, then from slightly shaken copies of the
/// best one (iterated local search), with `evaluations` in total. Leaves the arrangement at the
/// best placement found and returns its score. Deterministic.
double Improve(Arrangement& arrangement, std::int64_t evaluations);

/// The same with cuts and whole stages only, until none helps.
double ImproveStages(Arrangement& arrangement, std::int64_t evaluations);

}  // namespace adaptive_train
