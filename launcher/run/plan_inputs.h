// How `run` and `plan` make a plan: from stored and new measurements, within what the runtime can
// run.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/config.h"
#include "core/control_message.h"
#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "launcher/nodes/spares.h"
#include "launcher/planner/build_problem.h"
#include "launcher/planner/planner.h"
#include "launcher/run/replanner.h"

namespace adaptive_train {

/// The inputs of a run's plans. A value: a search on another thread has its own copy.
struct PlanInputs {
  Cluster cluster;
  ModelDims dims;
  TrainingFormat format;
  Profile profile;
  PlanRequest request;
  ExchangeOrders orders;  // carried into every plan
};

/// The inputs from a configuration. The request is limited to what the runtime can run, unless the
/// configuration asks for more.
PlanInputs InputsOf(const Config& config, Cluster cluster, Profile profile);

/// Inputs, and the nodes that they do without.
struct GatheredInputs {
  PlanInputs inputs;  // spares have no devices in the cluster
  std::vector<SpareNode> spares;
};

/// The inputs of `run` and of `plan`: InputsOf with `spares` nodes kept aside. Fails as ChooseSpares
/// does.
Result<GatheredInputs> GatherInputs(const Config& config, Cluster cluster, Profile profile,
                                    int spares);

/// The plan to run, and the planner's numbers behind it. Where a plan that this version cannot run would be faster, a line of `why` says
/// so. Fails with kNoPlan, and soon after `stop` is requested.
Result<PlannedRun> PlanAndProblemFor(const PlanInputs& inputs, const std::stop_token& stop = {});

/// The plan without its numbers.
Result<Plan> PlanFor(const PlanInputs& inputs, const std::stop_token& stop = {});

/// Fails with kNoPlan if the plan needs something that the runtime cannot run, and names it.
Result<void> CheckRunnable(const Plan& plan);
/// The plan, if there is one and it passes CheckRunnable.
Result<Plan> Runnable(Result<Plan> plan);

/// The layer times measured by ranks of `plan`, with the names used in profiles.
std::vector<LayerMeasurement> RecordsOf(const PlanInputs& inputs, const Plan& plan,
                                        const std::vector<LayerTimes>& times);

/// For a Replanner: plans again with the measurements of `plan`'s ranks.
PlanSearch SearchFrom(const PlanInputs& inputs, const Plan& plan);

}  // namespace adaptive_train
