#include "launcher/planner/link_levels.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace adaptive_train {
namespace {

/// Fewer levels for many groups, which have many shapes.
std::size_t LevelsFor(std::size_t groups) { return groups <= 64 ? 48 : 6; }

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

/// The nodes of the groups, and the bandwidths between them.
struct Network {
  std::vector<int> nodes;
  std::vector<double> bandwidths;                            // distinct, ascending, above 0
  double latency = std::numeric_limits<double>::infinity();  // the lowest
};

Network NetworkOf(const LinkTable& links, const std::vector<Group>& groups) {
  Network network;
  std::vector<int> count(links.Nodes());
  for (const Group& group : groups)
    if (count[Index(group.node)]++ == 0) network.nodes.push_back(group.node);
  for (int a : network.nodes) {
    for (int b : network.nodes) {
      if (a == b && count[Index(a)] < 2) continue;
      const LinkSpeed& link = links.At(a, b);
      if (link.bytes_per_second <= 0) continue;
      network.bandwidths.push_back(link.bytes_per_second);
      network.latency = std::min(network.latency, link.latency_s);
    }
  }
  auto& all = network.bandwidths;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return network;
}

/// Islands of nodes connected by links of at least `bandwidth` in either direction. An island holds
/// every possible ring, and may hold more.
std::vector<Island> IslandsAt(const LinkTable& links, const std::vector<Group>& groups,
                              const std::vector<int>& kind_of, int kinds, const Network& network,
                              double bandwidth) {
  std::vector<int> parent(links.Nodes());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int node) {
    while (parent[Index(node)] != node)
      node = parent[Index(node)] = parent[Index(parent[Index(node)])];
    return node;
  };
  for (int a : network.nodes)
    for (int b : network.nodes)
      if (links.At(a, b).bytes_per_second >= bandwidth) parent[Index(root(a))] = root(b);
  std::map<int, Island> islands;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Island& island = islands[root(groups[g].node)];
    island.members.resize(Index(kinds));
    ++island.groups;
    ++island.members[Index(kind_of[g])];
  }
  std::vector<Island> list;
  for (auto& [node, island] : islands) list.push_back(std::move(island));
  return list;
}

}  // namespace

LinkLevels::LinkLevels(const LinkTable& links, const std::vector<Group>& groups,
                       const std::vector<int>& kind_of, int kinds) {
  const Network network = NetworkOf(links, groups);
  const auto& all = network.bandwidths;
  const std::size_t levels = std::min(LevelsFor(groups.size()), all.size());
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < levels; ++i) starts.push_back(i * all.size() / levels);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t last = i + 1 < starts.size() ? starts[i + 1] - 1 : all.size() - 1;
    levels_.push_back({{network.latency, all[last]},
                       IslandsAt(links, groups, kind_of, kinds, network, all[starts[i]]),
                       0});
    for (const Island& island : levels_.back().islands)
      levels_.back().largest = std::max(levels_.back().largest, island.groups);
  }
}

RingSpeed LinkLevels::BestRing(int members) const {
  for (std::size_t i = levels_.size(); i-- > 0;)
    if (levels_[i].largest >= members) return levels_[i].best;
  return {};
}

}  // namespace adaptive_train
