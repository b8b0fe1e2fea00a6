// A plan in words, for a person.
#pragma once

#include <string>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"

namespace adaptive_train {

/// Ranks, shares, memory, why. Several lines.
std::string DescribePlan(const Plan& plan, const Cluster& cluster, const ModelShape& model);

/// The predicted step by part, memory of each device, what binds, what was rejected and what each
/// would lose, the gap to the bound. Several lines.
std::string ExplainPlan(const Plan& plan);

}  // namespace adaptive_train
