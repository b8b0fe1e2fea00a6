// Describes a plan in words.
#pragma once

#include <string>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"

namespace adaptive_train {

/// Several lines: ranks, shares, memory, reasons.
std::string DescribePlan(const Plan& plan, const Cluster& cluster, const ModelShape& model);

/// Several lines: the predicted step by part, memory of each device, the binding constraint,
/// rejected plans with what each would lose, and the gap to the bound.
std::string ExplainPlan(const Plan& plan);

}  // namespace adaptive_train
