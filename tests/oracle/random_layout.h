// Random layouts, well formed but for memory and Choices.
#pragma once

#include "launcher/planner/problem.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::oracle {

/// Any number of stages, replicas and tensor ranks that the problem's devices, layers and batch
/// have room for.
Layout RandomLayout(const PlanProblem& problem, Draws& draws);

}  // namespace adaptive_train::oracle
