// The best order of a ring of up to 8 members, by dynamic programmes over subsets (Held and Karp
// 1962, with bottlenecks instead of sums).
#pragma once

#include <vector>

#include "tests/oracle/terms.h"

namespace adaptive_train::oracle {

struct ExactRing {
  std::vector<int> order;  // indices into the nodes given
  RingLinks links;
};

/// `nodes` of the ring's members; two may be the same. The highest lowest bandwidth comes first;
/// among rings that have it, the lowest highest latency.
ExactRing BestRingOf(const PlanProblem& problem, const std::vector<int>& nodes);

}  // namespace adaptive_train::oracle
