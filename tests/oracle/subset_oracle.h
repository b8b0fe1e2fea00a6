// The best plan of a small problem, proven: a dynamic programme over sets of devices.
#pragma once

#include <optional>

#include "tests/oracle/found.h"

namespace adaptive_train::oracle {

/// Exact for up to 8 devices and about 12 layers; seconds at most. None if no layout fits.
///
/// Stages are placed from the last to the first. A state is the set of used devices, the layers
/// covered and the order of the stage placed last; it keeps the labels (round trip, period, most
/// micro-batches that memory allows, of each replica; longest exchange and update) of which none is
/// better than another in everything. Labels that cannot become better than the best plan known are
/// dropped; a narrow search that keeps a few labels only finds such a plan first.
std::optional<Best> FindBest(const PlanProblem& problem);

}  // namespace adaptive_train::oracle
