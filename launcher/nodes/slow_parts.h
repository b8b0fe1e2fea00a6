// Finds measured links and devices that are far slower than their kind: a pure function.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/profile.h"

namespace adaptive_train {

/// A link or a device that is far slower than its kind.
struct SlowPart {
  std::string node;
  std::string peer;  // the link from `node` to it; empty: the node's device, or most of its links
  std::string line;  // for people
};

/// Compares new measurements with the median of their kind. A kind is devices of one kind name, on
/// other nodes or earlier, or links between nodes whose cards are equally fast. Reports anything
/// below half of it, if at least 3 others are known. A node whose links are mostly slow is reported
/// once.
std::vector<SlowPart> FindSlowParts(const Cluster& cluster, const Profile& stored,
                                    const Profile& measured);

}  // namespace adaptive_train
