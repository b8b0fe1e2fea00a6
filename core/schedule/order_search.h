// Improves the order of a schedule's forwards and backwards.
#pragma once

#include "core/schedule/list_schedule.h"

namespace adaptive_train {

/// `schedule` has halved backwards in ascending order and keeps the pipeline's limits; so does what
/// comes back, which takes no longer. Simulated annealing over moves of actions on the critical
/// path, past their neighbours on the same rank (van Laarhoven et al. 1992). Stops after `moves`
/// tries, or at `enough_s`.
Schedule ImprovedOrder(const UnevenPipeline& pipeline, const Schedule& schedule, int moves,
                       double enough_s);

}  // namespace adaptive_train
