// Tries every layout: what the subset oracle is proven with, for up to 5 devices and 6 layers.
#pragma once

#include <optional>

#include "tests/oracle/found.h"

namespace adaptive_train::oracle {

/// The best layout that fits, or none if none does. Only what docs/planning.md does not tell apart
/// is left out: the order of replicas and of the devices of one tensor group.
std::optional<Best> TryAll(const PlanProblem& problem);

}  // namespace adaptive_train::oracle
