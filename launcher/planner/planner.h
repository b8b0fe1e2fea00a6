// Cluster + model -> plan. A pure function: no I/O, no clock, no randomness.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"

namespace adaptive_train {

/// What the configuration asks of the planner; none = the planner decides.
struct PlanRequest {
  std::int64_t global_batch = 0;              // sequences per step
  std::optional<std::int64_t> micro_batch;    // sequences
  std::optional<std::int64_t> data_parallel;  // ranks
  std::optional<std::int64_t> threads;        // per rank
};

/// Data parallel over all devices: every rank has the whole model and a share of the batch in
/// proportion to its device's speed, at least one sequence. More ranks than devices are placed
/// several on a node. Fails with kNoPlan and what would have to change, if a share or the memory
/// does not fit.
Result<Plan> MakePlan(const Cluster& cluster, const ModelShape& model, const PlanRequest& request);

/// `total` cut into integers of at least 1 that are proportional to `weights` up to rounding
/// (largest remainder). Needs total >= number of weights.
std::vector<std::int64_t> Apportion(std::int64_t total, const std::vector<double>& weights);

/// The plan for a person: ranks, shares, memory, why. Several lines.
std::string DescribePlan(const Plan& plan, const Cluster& cluster, const ModelShape& model);

}  // namespace adaptive_train
