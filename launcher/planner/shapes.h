// The shapes that a problem allows.
#pragma once

#include <string>
#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// All shapes with data between `fewest` and shape.data. On many devices neighbouring numbers of
/// replicas are judged together by the highest, which promises most.
struct ShapeRange {
  Shape shape;
  int fewest = 1;
};

/// Ranges that together contain every shape allowed by the choices, the number of devices and the
/// batch. `groups` are those of `tensor` devices.
std::vector<ShapeRange> AllShapes(const PlanProblem& problem, int tensor,
                                  const std::vector<Group>& groups);

/// Allowed numbers of tensor ranks, without repeats.
std::vector<int> TensorChoices(const PlanProblem& problem);

/// Divisors of the batch that a pipeline may use.
std::vector<std::int64_t> PipelineMicroBatches(const PlanProblem& problem);

/// "2 stages x 3 replicas x 4 tensor ranks, micro-batch 2, recompute full, shard 1".
std::string WordsOf(const Layout& layout);

std::string WordOf(Recompute recompute);

}  // namespace adaptive_train
