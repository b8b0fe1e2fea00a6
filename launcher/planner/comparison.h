// The plans of simpler planners for the same problem, judged by the same formulas.
#pragma once

#include <optional>
#include <string>

#include "launcher/planner/problem.h"

namespace adaptive_train {

struct Comparison {
  std::string name;              // "even static"
  std::string what;              // its shape, or why there is none
  std::optional<Layout> layout;  // none: not possible
  std::optional<StepCost> cost;
};

// All require a problem that passed CheckProblem, and respect its choices.

/// Megatron-LM's way (Narayanan et al. 2021): devices in the given order, adjacent ones as tensor
/// ranks, then replicas, then stages. Stages get equal numbers of blocks and replicas equal numbers
/// of samples, up to one. The best of all such factorisations.
Comparison EvenStatic(const PlanProblem& problem);

/// Every device holds a replica of the whole model; samples follow the devices' speeds.
Comparison DataParallelOnly(const PlanProblem& problem);

/// The framework paper's equation (1), solved by its greedy co-location. Layers go in order onto as
/// few devices as memory allows; each next device is the nearest by the time that activations take.
/// Replicas are built one after another from the remaining devices, the best connected first.
Comparison GreedyColocation(const PlanProblem& problem);

}  // namespace adaptive_train
