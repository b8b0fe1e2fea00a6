// Improves a placement step by step: moves cuts, swaps groups between places and with idle ones,
// swaps stages.
#pragma once

#include <stop_token>

#include "launcher/planner/arrangement.h"

namespace adaptive_train {

/// Improves the arrangement until no single change helps, then from slightly shaken copies of the
/// best one (iterated local search), with `evaluations` in total. Leaves the arrangement at the
/// best placement found and returns its score. Deterministic, unless `stop` ends it early.
double Improve(Arrangement& arrangement, std::int64_t evaluations,
               const std::stop_token& stop = {});

/// The same with cuts and whole stages only, until none helps.
double ImproveStages(Arrangement& arrangement, std::int64_t evaluations,
                     const std::stop_token& stop = {});

}  // namespace adaptive_train
