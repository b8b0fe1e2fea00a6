// What both exact solvers return, and the rules of docs/planning.md that leave no choice.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train::oracle {

struct Best {
  double step = 0;  // seconds
  Layout layout;
};

/// Numbers of stages, replicas or tensor ranks up to `most` that a list of Choices allows; an empty
/// list allows all.
std::vector<int> Allowed(const std::vector<int>& choices, int most);
/// Micro-batches that a pipeline may use.
std::vector<std::int64_t> PipelineMicroBatches(const PlanProblem& problem);

/// The share of one replica of a single stage that takes `samples`, with `largest` the requested
/// micro-batch or the largest that fits.
ReplicaShare SingleStageShare(std::int64_t samples, std::int64_t largest);
/// B_d without a request: 0 if no micro-batch fits into `memory_bytes`.
std::int64_t LargestMicroBatch(const PlanProblem& problem, double memory_bytes, int data,
                               int tensor, int shard, Recompute recompute);

}  // namespace adaptive_train::oracle
