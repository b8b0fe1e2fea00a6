// Chooses the nodes of an allocation that become spares: pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/profile.h"
#include "core/result.h"

namespace adaptive_train {

/// A spare, and why it was chosen.
struct SpareNode {
  std::string node;
  std::string why;                   // for people: "n3: its device is the slowest, 12.3 GFLOP/s"
  std::vector<Device> devices = {};  // while it is kept aside
  bool blamed = true;                // false: it is as good as the others
  bool operator==(const SpareNode&) const = default;
};

/// Picks `count` nodes, each the worst of those left. Criteria in order: far slower than its kind
/// (FindSlowParts), most recent failures, links lost most often, most slow links, slowest device,
/// slowest links (median). Among equals the last one in the allocation is picked. Nodes within 5 %
/// of each other are equal, and missing figures do not count against a node. Fails with kNoPlan if
/// no node would be left to train.
Result<std::vector<SpareNode>> ChooseSpares(const Cluster& cluster, const Profile& profile,
                                            int count);

/// The nodes and their links stay in the cluster; their devices go to the spares. Without devices
/// no plan uses them.
void KeepAside(std::vector<SpareNode>& spares, Cluster& cluster);

/// Gives a spare's devices back to the cluster, in the order of its nodes.
void PutIn(const SpareNode& spare, Cluster& cluster);

/// Takes a node that is lost out of the cluster, with its devices: nothing is planned, measured or
/// started on it any more.
void LeaveOut(const std::string& name, Cluster& cluster);

/// Puts the last spare in, if there is one. Returns what was done: " (n4 takes its place)", or
/// nothing.
std::string TakeSpare(Cluster& cluster, std::vector<SpareNode>& spares);

/// Takes lost nodes out and the last spares in, while there are some. Returns what was done, to
/// follow "going on": " without n3 (n4 takes its place)".
std::string ReplaceLost(const std::vector<std::string>& lost, Cluster& cluster,
                        std::vector<SpareNode>& spares);

}  // namespace adaptive_train
