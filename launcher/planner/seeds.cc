#include "launcher/planner/seeds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "launcher/planner/cuts.h"

namespace adaptive_train {
namespace {

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

/// The fastest run of `count` neighbours on the tour.
std::vector<int> FastestNeighbours(const std::vector<Group>& groups, const std::vector<int>& tour,
                                   std::size_t count) {
  const std::size_t n = tour.size();
  double speed = 0;
  for (std::size_t i = 0; i < count; ++i) speed += 1 / groups[Index(tour[i])].slowness;
  double best_speed = speed;
  std::size_t best = 0;
  for (std::size_t first = 1; first < n && count < n; ++first) {
    speed += 1 / groups[Index(tour[(first + count - 1) % n])].slowness -
             1 / groups[Index(tour[first - 1])].slowness;
    if (speed > best_speed * (1 + 1e-9)) best_speed = speed, best = first;
  }
  std::vector<int> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(tour[(best + i) % n]);
  return chosen;
}

/// `count` groups on few nodes: on the smallest node that holds them all, else on the largest
/// nodes.
std::vector<int> OnFewNodes(const std::vector<Group>& groups, std::vector<int> order,
                            std::size_t count) {
  std::map<int, std::size_t> on_node;
  for (const Group& group : groups) ++on_node[group.node];
  const auto rank = [&](int g) {
    const int node = groups[Index(g)].node;
    const std::size_t there = on_node[node];
    return std::tuple{there < count, there < count ? groups.size() - there : there, node};
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  order.resize(count);
  return order;
}

/// Consecutive groups make a stage. Its replicas follow the tour, so that a replica's stages are
/// near each other.
std::vector<int> StageByStage(SearchTables& tables, const std::vector<Group>& groups,
                              const Shape& shape, std::vector<int> order) {
  for (int s = 0; s < shape.stages; ++s) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(s) * shape.data;
    std::stable_sort(first, first + shape.data, [&](int a, int b) {
      return tables.Rings().TourPosition(groups[Index(a)].node) <
             tables.Rings().TourPosition(groups[Index(b)].node);
    });
  }
  return order;
}

/// The same groups, but stages are filled from both ends inwards. Embedding and head have large
/// gradients: they get the first groups, which are near each other.
std::vector<int> FromBothEnds(const Shape& shape, const std::vector<int>& places) {
  std::vector<int> folded(places.size());
  for (int s = 0; s < shape.stages; ++s) {
    const int to = s % 2 == 0 ? s / 2 : shape.stages - 1 - s / 2;
    std::copy_n(places.begin() + std::ptrdiff_t{s} * shape.data, shape.data,
                folded.begin() + std::ptrdiff_t{to} * shape.data);
  }
  return folded;
}

/// Consecutive groups make a replica.
std::vector<int> ReplicaByReplica(const Shape& shape, const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (int s = 0; s < shape.stages; ++s)
    for (int d = 0; d < shape.data; ++d)
      places[Index(s * shape.data + d)] = order[Index(d * shape.stages + s)];
  return places;
}

std::vector<int> In(const std::vector<int>& order, const std::vector<int>& chosen) {
  const std::set<int> set(chosen.begin(), chosen.end());
  std::vector<int> kept;
  for (int group : order)
    if (set.contains(group)) kept.push_back(group);
  return kept;
}

}  // namespace

GroupOrders OrdersOf(SearchTables& tables, const std::vector<Group>& groups) {
  GroupOrders orders;
  std::vector<int> all(groups.size());
  std::iota(all.begin(), all.end(), 0);
  const auto tour = [&](int g) { return tables.Rings().TourPosition(groups[Index(g)].node); };
  const auto slowness = [&](int g) { return groups[Index(g)].slowness; };
  std::stable_sort(all.begin(), all.end(), [&](int a, int b) {
    return tour(a) != tour(b) ? tour(a) < tour(b) : slowness(a) < slowness(b);
  });
  orders.by_tour = all;
  std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return slowness(a) < slowness(b); });
  orders.by_speed = all;
  std::stable_sort(all.begin(), all.end(),
                   [&](int a, int b) { return groups[Index(a)].limit > groups[Index(b)].limit; });
  orders.by_memory = all;
  return orders;
}

std::vector<Placement> SeedsOf(SearchTables& tables, const std::vector<Group>& groups,
                               const GroupOrders& orders, const Shape& shape) {
  const auto count = Index(shape.Groups());
  std::set<std::vector<int>> places;
  const std::vector<int> fastest(orders.by_speed.begin(),
                                 orders.by_speed.begin() + static_cast<std::ptrdiff_t>(count));
  const std::vector<int> largest(orders.by_memory.begin(),
                                 orders.by_memory.begin() + static_cast<std::ptrdiff_t>(count));
  for (const auto& chosen : {fastest, FastestNeighbours(groups, orders.by_tour, count), largest,
                             OnFewNodes(groups, orders.by_speed, count)}) {
    if (shape.stages == 1) {
      places.insert(chosen);
      continue;
    }
    for (std::vector<int> order :
         {In(orders.by_speed, chosen), In(orders.by_tour, chosen), In(orders.by_memory, chosen)}) {
      auto stages = StageByStage(tables, groups, shape, order);
      places.insert(FromBothEnds(shape, stages));
      places.insert(std::move(stages));
      places.insert(ReplicaByReplica(shape, order));
      std::reverse(order.begin(), order.end());
      places.insert(StageByStage(tables, groups, shape, order));
      if (shape.data == 1) continue;
      places.insert(ReplicaByReplica(shape, order));
    }
  }
  std::vector<Placement> seeds;
  for (const auto& place : places)
    if (auto cut = BestCuts(tables, groups, shape, place); !cut.empty())
      seeds.push_back({std::move(cut), place});
  // Memory may still allow a placement that BestCuts rejects, since it assumes a full pipeline.
  for (auto place = places.begin(); seeds.empty() && place != places.end(); ++place)
    seeds.push_back({FirstCuts(tables.Problem(), shape.stages), *place});
  return seeds;
}

}  // namespace adaptive_train
