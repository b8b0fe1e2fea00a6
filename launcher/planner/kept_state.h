// What ranks keep of the training state in memory that outlives them, as a part of a plan's memory.
#pragma once

#include <vector>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"

namespace adaptive_train {

/// Bytes of every rank: both slots of its own parts and of those that it keeps for others
/// (core/keeping_rule.h), with residuals where the plan's orders let gradients be compressed.
std::vector<double> KeptBytes(const ModelShape& shape, const Plan& plan);

/// Notes which switches the ranks are behind, as their buddies are chosen by that. Where the plan's
/// orders are to keep the state: adds it to the memory of ranks and plan if every
/// rank has room for it, otherwise orders that nothing is kept and says so in plan.why.
void CountKeptState(const ModelShape& shape, const Cluster& cluster, Plan& plan);

}  // namespace adaptive_train
