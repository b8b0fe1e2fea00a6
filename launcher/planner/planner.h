// Cluster + model + measurements -> plan. A pure function: no I/O, no clock, no randomness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"
#include "core/profile.h"
#include "launcher/planner/build_problem.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/micro_batch_grid.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// A plan with the numbers behind it, for closer study (the simulator).
struct PlannedRun {
  Plan plan;
  PlanProblem problem;
  Layout layout;
  std::vector<GridPoint> grid;  // over the number of micro-batches
  std::size_t chosen = 0;       // of the grid
};

/// The fastest plan that the request allows, by docs/planning.md. The best plans of other shapes
/// and of simpler planners are its alternatives. Fails with kNoPlan, naming the violated constraint
/// and the nearest feasible request. Once `stop` is requested, it fails soon after.
Result<PlannedRun> MakePlan(const Cluster& cluster, const ModelDims& dims,
                            const TrainingFormat& format, const Profile& profile,
                            const PlanRequest& request, const std::stop_token& stop = {});

/// An earlier plan, its step predicted again from what is known now. Fails if its ranks are not on
/// devices of the cluster.
Result<Plan> PriceAgain(const Plan& plan, const Cluster& cluster, const ModelDims& dims,
                        const TrainingFormat& format, const Profile& profile,
                        const PlanRequest& request);

/// How long the plan's ranks compute by what is known now (PlaceSecondsOf). Fails where PriceAgain
/// does, and if nothing is known of the devices' speed.
Result<std::vector<PlaceSeconds>> PlaceSecondsOf(const Plan& plan, const Cluster& cluster,
                                                 const ModelDims& dims,
                                                 const TrainingFormat& format,
                                                 const Profile& profile,
                                                 const PlanRequest& request);

}  // namespace adaptive_train
