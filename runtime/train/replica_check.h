// Whether ranks that should have the same parameters have them.
#pragma once

#include <cstdint>
#include <span>

#include "core/plan.h"
#include "kernels/device.h"
#include "runtime/comm/groups.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Compares hashes of this rank's weights after `step`: replicas have the same, tensor ranks those
/// that they do not share out. All ranks of the plan call it. Blocks for what the sums take. Throws
/// FatalError with the first rank whose weights differ, its node and the step.
template <class T>
void CheckReplicas(Groups& groups, const Plan& plan, const ParameterLayout& layout,
                   kernels::Device<T>& device, std::span<const T> weights, std::int64_t step);

}  // namespace adaptive_train
