// The proven optimum of a small problem, by dynamic programming over sets of devices.
#pragma once

#include <optional>

#include "tests/oracle/found.h"

namespace adaptive_train::oracle {

/// Exact for up to 8 devices and about 12 layers; takes seconds at most. None if no layout fits.
///
/// Stages are placed from the last to the first. A state is the set of used devices, the layers
/// covered and the order of the stage placed last. It keeps labels of which none is better than
/// another in everything: round trip, period and most micro-batches that memory allows, of each
/// replica; longest exchange and update. Labels that cannot beat the best known plan are dropped. A
/// narrow search that keeps only a few labels finds such a plan first.
std::optional<Best> FindBest(const PlanProblem& problem);

}  // namespace adaptive_train::oracle
