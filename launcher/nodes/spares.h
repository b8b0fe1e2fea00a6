// Which nodes of an allocation the plan does without: pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/profile.h"
#include "core/result.h"

namespace adaptive_train {

/// A node that is kept aside, and why this one.
struct SpareNode {
  std::string node;
  std::string why;  // for people: "n3: its device is the slowest, 12.3 GFLOP/s"
};

/// Picks `count` nodes, one after the other the worst of those left: what is far below its kind
/// (FindSlowParts) before what failed most of late, then the node with the most links far below
/// their kind, the slowest device, the slowest links (median); of equals the last one in the
/// allocation. Within 5 % of each other nodes are equal, and what is not known is not held against
/// a node. Fails with kNoPlan where no node would be left to train.
Result<std::vector<SpareNode>> ChooseSpares(const Cluster& cluster, const Profile& profile,
                                            int count);

/// The nodes stay known, and so do their links; without devices no plan uses them.
void KeepAside(const std::vector<SpareNode>& spares, Cluster& cluster);

}  // namespace adaptive_train
