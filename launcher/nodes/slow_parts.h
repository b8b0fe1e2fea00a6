// Which of the measured links and devices are far below their kind: a pure function.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/profile.h"

namespace adaptive_train {

/// A link or a device that is far below its kind.
struct SlowPart {
  std::string node;
  std::string peer;  // the link from `node` to it; empty: the node's device, or most of its links
  std::string line;  // for people
};

/// Compares what was measured now with the median of its kind: devices of one kind name, on other
/// nodes or earlier; links between nodes whose cards are equally fast. Named is what has less than
/// half of it, where at least 3 others are known. A node whose links are slow for the most part is
/// named once.
std::vector<SlowPart> FindSlowParts(const Cluster& cluster, const Profile& stored,
                                    const Profile& measured);

}  // namespace adaptive_train
