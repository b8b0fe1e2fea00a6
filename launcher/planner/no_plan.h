// Explains why a problem has no plan, and names the nearest request that has one.
#pragma once

#include <optional>

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// The error of a problem for which no layout was found: "no feasible plan: ...", exit code
/// kNoPlan.
Error WhyNoPlan(const PlanProblem& problem);
/// The same where the request's numbers alone allow none, whatever devices can do; none otherwise.
std::optional<Error> WhyRefused(const PlanProblem& problem);

}  // namespace adaptive_train
