// How far the planner's layouts are from the optimum.
#pragma once

#include <cstdint>

#include "launcher/planner/problem.h"

namespace adaptive_train::oracle {

/// Gaps over the problems of some seeds. A gap is (planner - best) / best.
struct Gaps {
  int possible = 0;    // clusters for which a layout exists
  int impossible = 0;  // rightly refused
  double mean = 0;     // over the possible ones
  double worst = 0;
  int far = 0;  // gaps above 5 %
};

/// Runs planner and oracle on seeds [first, end). Adds a failure to the running test if the
/// planner's layout is not well formed or its cost differs from the judge's. The same holds if its
/// bound is above the optimum, or only one of the two finds a layout. Prints the seeds that are
/// more than 1 % off.
Gaps MeasureGaps(PlanProblem (*problem_of)(std::uint64_t seed), std::uint64_t first,
                 std::uint64_t end);

}  // namespace adaptive_train::oracle
