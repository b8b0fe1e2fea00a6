// What a plan begins with: the cluster as it is, and what the configuration asks.
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
#include "launcher/steps/programs.h"

namespace adaptive_train {

/// What the configuration, as LoadConfig gave it, fixes and what it leaves to the planner.
PlanRequest RequestOf(const Config& config);

/// The nodes' snapshots as a cluster with its CPU devices, or with device.kind = "cuda" its GPUs,
/// each with the threads that a rank gets. device.speeds says how fast they are, if it has all of
/// their models.
Cluster ClusterOf(const Allocation& allocation, const std::vector<NodeCheck>& checks,
                  const Config& config);

/// The nodes of an allocation as they are now.
struct SeenNodes {
  std::vector<NodeCheck> checks;  // in the order of the allocation
  Cluster cluster;
};

/// Looks at every node: `run`, `plan` and `links` see the same cluster. Of the configuration,
/// [launch] and device.threads count. `run_dir` must be shared and `readable` be readable, where
/// they are given. Blocks and fails as CheckAllNodes does.
Result<SeenNodes> SeeNodes(const Config& config, const Allocation& allocation,
                           const Programs& programs, const std::string& run_dir = "",
                           const std::vector<std::string>& readable = {});

/// What to ask the store for: all nodes and kinds of devices of the cluster, with as many threads
/// as ranks may get there, and the configuration's model.
ProfileQuery QueryOf(const Cluster& cluster, const Config& config);

}  // namespace adaptive_train
