// What simpler planners would do with the same problem, judged by the same formulas.
#pragma once

#include <optional>
#include <string>

#include "launcher/planner/problem.h"

namespace adaptive_train {

struct Comparison {
  std::string name;              // "even static"
  std::string what;              // its shape, or why there is none
  std::optional<Layout> layout;  // none: it cannot be
  std::optional<StepCost> cost;
};

// All need a problem that passed CheckProblem, and keep to its choices.

/// Megatron-LM's way (Narayanan et al. 2021): devices in the given order, tensor ranks next to each
/// other, then replicas, then stages; as many blocks for each stage and as many samples for each
/// replica, up to one; the best of all such factorisations.
Comparison EvenStatic(const PlanProblem& problem);

/// Each device is a replica with the whole model; samples follow the devices' speeds.
Comparison DataParallelOnly(const PlanProblem& problem);

/// The framework paper's equation (1) by its greedy co-location: layers in order, on as few devices
/// as memory allows, each next device the nearest to the one before by the time that activations
/// take; replicas one after another from what is left, the best connected device first.
Comparison GreedyColocation(const PlanProblem& problem);

}  // namespace adaptive_train
