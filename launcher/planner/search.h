// Finds the layout with the shortest step, and says how far from the best it can be at most.
#pragma once

#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "launcher/planner/bound.h"
#include "launcher/planner/check_problem.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

struct FoundLayout {
  Layout layout;
  StepCost cost;
  double bound = 0;                       // seconds: no layout takes less
  std::vector<Alternative> alternatives;  // the best of other shapes, soonest first, each once
};

/// Searches all shapes (stages, replicas, tensor ranks, micro-batch, recomputation, shard) that the
/// problem allows. One method at every size: shapes in the order of their lower bounds, those that
/// cannot win left out; for each, groups of devices in several orders, cut by a dynamic programme
/// (BestCuts); local search from the best of these, most for the most promising. Never worse than
/// the comparisons of comparison.h.
///
/// A pure function: the work is a fixed number of evaluations that falls with the size of the
/// problem, the result the same on every call. Seconds at most. Fails with kNoPlan, the constraint
/// that fails and the nearest request that could be met; with kUsage where CheckProblem does.
Result<FoundLayout> FindLayout(const PlanProblem& problem);

/// A layout that fits, found with little effort; none if none was found. Needs a problem that
/// passed CheckProblem.
std::optional<Layout> FindAnyLayout(const PlanProblem& problem);

}  // namespace adaptive_train
