// For tests/bench/replan_harm: the adaptive-train command with a run that keeps its first plan. Its
// ranks measure their layers as ever, but nobody asks the planner again. Linked in place of
// Replanner::AfterStep.
#include <cstdint>

#include "launcher/run/replanner.h"

namespace adaptive_train {

// A member function is called like a free one whose first parameter is the object.
Replanner::Answer GoOn(Replanner* replanner, double step_s, std::int64_t remaining_steps,
                       const MovingCost& cost) asm("__wrap_" AFTER_STEP);

Replanner::Answer GoOn(Replanner* /*replanner*/, double /*step_s*/,
                       std::int64_t /*remaining_steps*/, const MovingCost& /*cost*/) {
  return {};
}

}  // namespace adaptive_train
