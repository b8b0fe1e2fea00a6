// Checks that a planning problem is sound: its numbers come from measurements and files.
#pragma once

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Speeds and sizes must be finite and in range, indices must exist, and there must be something to
/// plan. A bandwidth of 0 is allowed: such a pair cannot communicate. Fails in one line that names
/// the first error and what is allowed. The rest of the planner requires a problem that passed.
Result<void> CheckProblem(const PlanProblem& problem);

}  // namespace adaptive_train
