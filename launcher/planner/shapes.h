// The shapes that a problem allows.
#pragma once

#include <string>
#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// All shapes with data between `fewest` and shape.data: on many devices neighbouring numbers of
/// replicas are judged together, by the highest, which promises most.
struct ShapeRange {
  Shape shape;
  int fewest = 1;
};

/// Every shape that the choices, the number of devices and the batch allow is in one range.
/// `groups` = those of `tensor` devices.
std::vector<ShapeRange> AllShapes(const PlanProblem& problem, int tensor,
                                  const std::vector<Group>& groups);

/// Numbers of tensor ranks to look at: those chosen, without repeats.
std::vector<int> TensorChoices(const PlanProblem& problem);

/// Divisors of the batch that a pipeline may use.
std::vector<std::int64_t> PipelineMicroBatches(const PlanProblem& problem);

/// "2 stages x 3 replicas x 4 tensor ranks, micro-batch 2, recompute full, shard 1".
std::string WordsOf(const Layout& layout);

std::string WordOf(Recompute recompute);

}  // namespace adaptive_train
