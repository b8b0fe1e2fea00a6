// Explains why a problem has no plan, and names the nearest request that has one.
#pragma once

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// The error of a problem for which no layout was found: "no feasible plan: ...", exit code
/// kNoPlan.
Error WhyNoPlan(const PlanProblem& problem);

}  // namespace adaptive_train
