#include "tests/oracle/random_layout.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace adaptive_train::oracle {
namespace {

template <typename Value>
void Shuffle(std::vector<Value>& values, Draws& draws) {
  for (int i = static_cast<int>(values.size()) - 1; i > 0; --i)
    std::swap(values[static_cast<std::size_t>(i)],
              values[static_cast<std::size_t>(draws.Integer(0, i))]);
}

/// Disjoint groups of `tensor` devices of one node, in random order.
std::vector<std::vector<int>> GroupsOf(const PlanProblem& problem, int tensor, Draws& draws) {
  std::vector<std::vector<int>> on_node(problem.links.Nodes());
  std::vector<int> order(problem.devices.size());
  std::iota(order.begin(), order.end(), 0);
  Shuffle(order, draws);
  std::vector<std::vector<int>> groups;
  for (const int device : order) {
    const int node = problem.devices[static_cast<std::size_t>(device)].node;
    std::vector<int>& open = on_node[static_cast<std::size_t>(node)];
    open.push_back(device);
    if (static_cast<int>(open.size()) == tensor) groups.push_back(std::exchange(open, {}));
  }
  Shuffle(groups, draws);
  return groups;
}

/// `total` as `parts` positive numbers.
std::vector<std::int64_t> Parts(std::int64_t total, int parts, Draws& draws) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), 1);
  for (std::int64_t left = total - parts; left > 0; --left)
    ++sizes[static_cast<std::size_t>(draws.Integer(0, parts - 1))];
  return sizes;
}

std::vector<ReplicaShare> Shares(const PlanProblem& problem, const Layout& layout, Draws& draws) {
  std::vector<ReplicaShare> shares;
  if (layout.Stages() == 1) {
    for (const std::int64_t samples : Parts(problem.global_batch, layout.data, draws))
      shares.push_back({samples, draws.Integer(1, static_cast<int>(samples))});
    return shares;
  }
  std::vector<std::int64_t> allowed;
  for (std::int64_t samples = 1; samples <= problem.global_batch / layout.data; ++samples)
    if (problem.global_batch % samples == 0) allowed.push_back(samples);
  const std::int64_t samples =
      allowed[static_cast<std::size_t>(draws.Integer(0, static_cast<int>(allowed.size()) - 1))];
  for (const std::int64_t count : Parts(problem.global_batch / samples, layout.data, draws))
    shares.push_back({count * samples, samples});
  return shares;
}

}  // namespace

Layout RandomLayout(const PlanProblem& problem, Draws& draws) {
  Layout layout;
  layout.tensor = draws.Integer(1, 2);
  std::vector<std::vector<int>> groups = GroupsOf(problem, layout.tensor, draws);
  if (groups.empty()) groups = GroupsOf(problem, layout.tensor = 1, draws);
  const auto layers = static_cast<int>(problem.layers.size());
  const auto most = static_cast<int>(groups.size());
  const int stages = draws.Integer(1, std::min(most, layers));
  layout.data = draws.Integer(
      1, static_cast<int>(std::min<std::int64_t>(most / stages, problem.global_batch)));
  groups.resize(static_cast<std::size_t>(stages * layout.data));
  for (const std::vector<int>& group : groups)
    layout.devices.insert(layout.devices.end(), group.begin(), group.end());
  layout.recompute = draws.OneOf({Recompute::kNone, Recompute::kSelective, Recompute::kFull});
  layout.shard = draws.Integer(0, 2);
  layout.cut = {0};
  for (const std::int64_t count : Parts(layers, stages, draws))
    layout.cut.push_back(layout.cut.back() + static_cast<int>(count));
  layout.shares = Shares(problem, layout, draws);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> ring(static_cast<std::size_t>(layout.data));
    std::iota(ring.begin(), ring.end(), 0);
    Shuffle(ring, draws);
    layout.rings.push_back(ring);
  }
  for (const ProblemLayer& layer : problem.layers)
    layout.compressed.push_back(layer.compressed_bytes > 0 && draws.Chance(0.5));
  return layout;
}

}  // namespace adaptive_train::oracle
