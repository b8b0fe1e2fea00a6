// Finds the layout with the shortest step, and bounds how far it is from the best.
#pragma once

#include <optional>
#include <stop_token>
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

/// Searches all shapes that the problem allows: stages, replicas, tensor ranks, micro-batch,
/// recomputation, shard. The method is the same at every size. Shapes are taken in the order of
/// their lower bounds, and those that cannot win are skipped. For each, groups of devices are
/// placed in several orders and cut by dynamic programming (BestCuts). Local search improves the
/// best of these, with most effort for the most promising. Never worse than the plans of
/// comparison.h.
///
/// A pure function that takes seconds at most. Its work is a fixed number of evaluations, fewer for
/// larger problems, and its result is the same on every call. Fails with kNoPlan, naming the
/// violated constraint and the nearest feasible request; with kUsage if CheckProblem does.
/// Once `stop` is requested, it fails soon after.
Result<FoundLayout> FindLayout(const PlanProblem& problem, const std::stop_token& stop = {});

/// A layout that fits, found with little effort, or none. Needs a problem that passed CheckProblem.
std::optional<Layout> FindAnyLayout(const PlanProblem& problem);

}  // namespace adaptive_train
