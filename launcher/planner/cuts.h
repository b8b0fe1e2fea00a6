// Where to cut the layers for stages whose devices are known: the busiest stage as little busy as
// can be, unless the exchange of gradients asks for more.
#pragma once

#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// Cuts for the groups in places (index = stage x data + replica), or an empty list if memory
/// allows none. A dynamic programme over stages: time and bytes of a stage grow with its layers, so
/// that of all ways to lay out the first stages within a limit only the one that reaches furthest
/// counts; the limit is found by bisection. Where stages that are busier by some steps have less to
/// exchange, and a step is expected to take less, the same with both limits.
std::vector<int> BestCuts(SearchTables& tables, const std::vector<Group>& groups,
                          const Shape& shape, const std::vector<int>& places);

/// The same number of layers for each stage, up to one.
std::vector<int> EvenCuts(int layers, int stages);

}  // namespace adaptive_train
