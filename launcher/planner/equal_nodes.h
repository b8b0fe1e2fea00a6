// Finds nodes that the planner cannot tell apart: a plan without one of them is a plan without any
// other. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/plan.h"
#include "core/profile.h"
#include "launcher/planner/build_problem.h"

namespace adaptive_train {

/// The nodes that have devices, in classes of equal ones; classes and their members are in the
/// cluster's order. Two nodes are equal if exchanging them changes none of the planner's numbers:
/// devices, memory, standing, and the links with each other node. Measured links are never equal.
/// Without a problem (BuildProblem fails) each node is a class.
std::vector<std::vector<std::string>> EqualNodes(const Cluster& cluster, const ModelDims& dims,
                                                 const TrainingFormat& format,
                                                 const Profile& profile,
                                                 const PlanRequest& request);

/// The plan with two nodes exchanged, in its reasons too. If they are equal, and the plan was made
/// without `a`, it is as good without `b`.
Plan Exchanged(Plan plan, const std::string& a, const std::string& b);

}  // namespace adaptive_train
