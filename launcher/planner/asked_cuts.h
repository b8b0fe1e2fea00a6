// Cuts of the layers into stages that a request asks for (parallel.layout).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train {

/// The cuts of `stages` stages that the request asks for, or an empty list. A stage of several chunks
/// has these behind one another, which costs the same: blocks are alike.
std::vector<int> AskedCuts(const PlanProblem& problem, int stages);

/// On the straight way from `asked` to `possible`, which `fits`, the first cuts that do. Both have as
/// many chunks. Calls `fits` about as often as the way's length has bits.
std::vector<int> NearestCuts(const std::vector<int>& asked, const std::vector<int>& possible,
                             const std::function<bool(const std::vector<int>&)>& fits);

/// Cuts as a setting: parallel.layout = "Ett|t*3L".
std::string LayoutSetting(const std::vector<int>& cut);

}  // namespace adaptive_train
