// The inputs of a plan for `run` and `plan`: the current cluster, and the configuration's request.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/config.h"
#include "core/profile.h"
#include "core/result.h"
#include "db/profile_store.h"
#include "launcher/nodes/allocation.h"
#include "launcher/nodes/node_check.h"
#include "launcher/planner/build_problem.h"

namespace adaptive_train {

/// What the configuration fixes and what it leaves to the planner.
PlanRequest RequestOf(const Config& config);

/// The nodes' snapshots as a cluster with its CPU devices, each with the threads that a rank gets.
Cluster ClusterOf(const Allocation& allocation, const std::vector<NodeCheck>& checks,
                  const Config& config);

/// The store's query: all nodes and device kinds of the cluster, with the threads that ranks may
/// get, and the configuration's model.
ProfileQuery QueryOf(const Cluster& cluster, const Config& config);

}  // namespace adaptive_train
