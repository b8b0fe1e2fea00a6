// Cuts the layers into stages for given devices, so that the busiest stage has least to do, unless
// less exchange of gradients is worth more.
#pragma once

#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// Cuts for the groups in places (index = stage x data + replica), or an empty list if memory
/// allows none. AskedCuts are taken whether or not they fit. Dynamic programming over stages: a stage's time and bytes grow with its layers. Of
/// all layouts of the first stages within a limit, only the one that reaches furthest matters. The
/// limit is found by bisection. A second search limits the exchange too, for busier stages with
/// less of it.
std::vector<int> BestCuts(SearchTables& tables, const std::vector<Group>& groups,
                          const Shape& shape, const std::vector<int>& places);

/// AskedCuts, otherwise the same number of layers per stage, up to one.
std::vector<int> FirstCuts(const PlanProblem& problem, int stages);

}  // namespace adaptive_train
