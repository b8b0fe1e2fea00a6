// Is a planning problem sound? Its numbers come from measurements and files.
#pragma once

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Speeds and sizes finite and in range, indices that exist, something to plan. A bandwidth of 0
/// is allowed: such pairs cannot reach each other. Fails in one line that names the first thing
/// wrong and what is allowed. Everything else in the planner needs a problem that passed.
Result<void> CheckProblem(const PlanProblem& problem);

}  // namespace adaptive_train
