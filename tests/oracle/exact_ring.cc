#include "tests/oracle/exact_ring.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace adaptive_train::oracle {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The ring through all members whose largest weight of a link is smallest.
template <typename Weight>
std::vector<int> SmallestBottleneck(int members, Weight&& weight) {
  const std::size_t subsets = std::size_t{1} << members, width = static_cast<std::size_t>(members);
  // Of paths that start at member 0, visit the subset and end at a member of it.
  std::vector<double> least(subsets * width, kNever);
  std::vector<int> before(subsets * width, -1);
  const auto at = [&](std::size_t subset, int end) {
    return subset * width + static_cast<std::size_t>(end);
  };
  least[at(1, 0)] = -kNever;
  for (std::size_t subset = 1; subset < subsets; subset += 2)
    for (int end = 0; end < members; ++end) {
      if (least[at(subset, end)] == kNever) continue;
      for (int next = 1; next < members; ++next) {
        if (subset >> next & 1) continue;
        const double worst = std::max(least[at(subset, end)], weight(end, next));
        const std::size_t to = at(subset | std::size_t{1} << next, next);
        if (worst >= least[to]) continue;
        least[to] = worst;
        before[to] = end;
      }
    }
  std::size_t subset = subsets - 1;
  int end = 0;
  double best = kNever;
  for (int candidate = members == 1 ? 0 : 1; candidate < members; ++candidate) {
    const double worst = std::max(least[at(subset, candidate)], weight(candidate, 0));
    if (candidate > 1 && worst >= best) continue;
    best = worst;
    end = candidate;
  }
  std::vector<int> order;
  while (end >= 0) {
    order.push_back(end);
    const int previous = before[at(subset, end)];
    subset &= ~(std::size_t{1} << end);
    end = previous;
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int> NodesInOrder(const std::vector<int>& nodes, const std::vector<int>& order) {
  std::vector<int> ordered;
  for (const int member : order) ordered.push_back(nodes[static_cast<std::size_t>(member)]);
  return ordered;
}

}  // namespace

ExactRing BestRingOf(const PlanProblem& problem, const std::vector<int>& nodes) {
  const auto members = static_cast<int>(nodes.size());
  const auto link = [&](int from, int to) -> const LinkSpeed& {
    return problem.links.At(nodes[static_cast<std::size_t>(from)],
                            nodes[static_cast<std::size_t>(to)]);
  };
  std::vector<int> order = SmallestBottleneck(
      members, [&](int from, int to) { return -link(from, to).bytes_per_second; });
  const double bandwidth = LinksOfRing(problem, NodesInOrder(nodes, order)).bytes_per_second;
  // Links below that bandwidth are worse than any latency.
  constexpr double kTooSlow = std::numeric_limits<double>::max();
  order = SmallestBottleneck(members, [&](int from, int to) {
    return link(from, to).bytes_per_second < bandwidth ? kTooSlow : link(from, to).latency_s;
  });
  return {order, LinksOfRing(problem, NodesInOrder(nodes, order))};
}

}  // namespace adaptive_train::oracle
