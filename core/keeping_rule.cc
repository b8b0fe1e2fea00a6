#include "core/keeping_rule.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

namespace adaptive_train {
namespace {

/// The ranks of each node, nodes in the order of their first rank.
std::vector<std::vector<int>> RanksByNode(const Plan& plan) {
  std::vector<int> all(plan.ranks.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  return MembersByNode(plan, all);
}

const std::vector<std::string>& SwitchesOf(const Plan& plan, const std::vector<int>& node) {
  return plan.ranks[static_cast<std::size_t>(node.front())].switches;
}

/// Nodes on the switch that most of them are on; they are in the order of switches.
std::size_t MostOnASwitch(const Plan& plan, const std::vector<std::vector<int>>& nodes) {
  std::size_t most = 0, begin = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (SwitchesOf(plan, nodes[node]) != SwitchesOf(plan, nodes[begin])) begin = node;
    most = std::max(most, node - begin + 1);
  }
  return most;
}

/// Of each rank; kNoBuddy on a single node. No switch has nodes that are so far from each other in
/// the order of switches, unless more than half of all nodes are on one.
std::vector<int> Buddies(const Plan& plan) {
  auto nodes = RanksByNode(plan);
  std::vector<int> buddies(plan.ranks.size(), kNoBuddy);
  if (nodes.size() < 2) return buddies;
  std::stable_sort(nodes.begin(), nodes.end(), [&plan](const auto& a, const auto& b) {
    return SwitchesOf(plan, a) < SwitchesOf(plan, b);
  });
  const std::size_t half = nodes.size() / 2, most = MostOnASwitch(plan, nodes);
  const std::size_t further = most < nodes.size() ? std::max(half, most) : half;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::vector<int>& other = nodes[(node + further) % nodes.size()];
    for (std::size_t i = 0; i < nodes[node].size(); ++i)
      buddies[static_cast<std::size_t>(nodes[node][i])] = other[i % other.size()];
  }
  return buddies;
}

/// The parts of replicas that all have the same state.
void ShareOutByNode(const Plan& plan, const std::vector<int>& members,
                    const std::vector<int>& buddies, std::vector<KeptParts>& parts) {
  const auto nodes = MembersByNode(plan, members);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (std::size_t i = 0; i < nodes[node].size(); ++i) {
      const auto rank = static_cast<std::size_t>(members[static_cast<std::size_t>(nodes[node][i])]);
      parts[rank].state = {members.front(), static_cast<int>(node), static_cast<std::int64_t>(i),
                           static_cast<std::int64_t>(nodes[node].size()),
                           nodes.size() == 1 ? buddies[rank] : kNoBuddy};
    }
  }
}

}  // namespace

bool SharesOutState(const Plan& plan) { return plan.data > 1 && plan.shard > 0; }

std::vector<KeptParts> KeptPartsOf(const Plan& plan) {
  const std::vector<int> buddies = Buddies(plan);
  std::vector<KeptParts> parts(plan.ranks.size());
  for (int first = 0; first < static_cast<int>(parts.size()); ++first) {
    const RankPlan& rank = plan.ranks[static_cast<std::size_t>(first)];
    if (rank.replica > 0) continue;
    std::vector<int> members;
    for (int replica = 0; replica < plan.data; ++replica)
      members.push_back(first + replica * plan.tensor);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto own = static_cast<std::size_t>(members[i]);
      parts[own].residuals = {first, 0, static_cast<std::int64_t>(i),
                              static_cast<std::int64_t>(members.size()), buddies[own]};
      parts[own].state = parts[own].residuals;
    }
    if (!SharesOutState(plan)) ShareOutByNode(plan, members, buddies, parts);
  }
  return parts;
}

}  // namespace adaptive_train
