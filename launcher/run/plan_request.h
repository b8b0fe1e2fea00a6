// What `run` and `plan` both need for a plan: the cluster as it is, and what the configuration
// asks.
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

/// What the configuration leaves to the planner and what it does not.
PlanRequest RequestOf(const Config& config);

/// The nodes' snapshots as a cluster with its CPU devices, each with the threads that a rank gets.
Cluster ClusterOf(const Allocation& allocation, const std::vector<NodeCheck>& checks,
                  const Config& config);

/// What to ask the store for: all nodes and kinds of devices of the cluster, with as many threads
/// as ranks may get there, and the configuration's model.
ProfileQuery QueryOf(const Cluster& cluster, const Config& config);

}  // namespace adaptive_train
