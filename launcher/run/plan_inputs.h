// How `run` and `plan` come to a plan: what is stored and measured of the nodes, then the planner,
// within what the runtime can run.
#pragma once

#include <functional>
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

/// All that a run's plans are made from. A value: a search on another thread has its own.
struct PlanInputs {
  Cluster cluster;
  ModelDims dims;
  TrainingFormat format;
  Profile profile;
  PlanRequest request;
  ExchangeOrders orders;  // carried into every plan
};

/// The inputs of a configuration. The request asks for nothing that the runtime cannot run, unless
/// the configuration does.
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
/// so. Fails with kNoPlan.
Result<PlannedRun> PlanAndProblemFor(const PlanInputs& inputs);

/// The plan alone.
Result<Plan> PlanFor(const PlanInputs& inputs);

/// A configuration that asks for what the runtime cannot run: an error that says what, with
/// kNoPlan.
Result<void> CheckRunnable(const Plan& plan);

/// The layer times that ranks of `plan` have measured, under the names that profiles know.
std::vector<LayerMeasurement> RecordsOf(const PlanInputs& inputs, const Plan& plan,
                                        const std::vector<LayerTimes>& times);

/// What a Replanner asks: plans again with what the ranks of `plan` have measured.
PlanSearch SearchFrom(const PlanInputs& inputs, const Plan& plan);

}  // namespace adaptive_train
