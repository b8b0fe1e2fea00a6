#include "launcher/planner/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "launcher/planner/bound.h"
#include "launcher/planner/local_search.h"

namespace adaptive_train {
namespace {

/// Whether a shape is one decision away from `centre`, apart from the number of replicas.
bool Near(const Shape& shape, const Shape& centre) {
  const auto near = [](auto a, auto b) { return a <= 2 * b && b <= 2 * a; };
  const int differ = (shape.tensor != centre.tensor) + (shape.stages != centre.stages) +
                     (shape.micro_batch != centre.micro_batch) +
                     (shape.recompute != centre.recompute) + (shape.shard != centre.shard);
  const int apart = std::abs(shape.stages - centre.stages);
  return differ <= 1 && near(shape.tensor, centre.tensor) && near(shape.stages, centre.stages) &&
         (apart <= 2 || apart % 4 == 0) && near(shape.micro_batch, centre.micro_batch);
}

bool Holds(const ShapeRange& range, int data) {
  return range.fewest <= data && data <= range.shape.data;
}

/// Whether the range has as many replicas as the centre, or as many as its devices allow.
bool KeepsReplicas(const ShapeRange& range, const Shape& centre) {
  return Holds(range, centre.data) ||
         Holds(range, centre.Groups() * centre.tensor / (range.shape.stages * range.shape.tensor));
}

}  // namespace

Candidates::Candidates(SearchTables& tables, const SeedEffort& effort, std::stop_token stop)
    : tables_(tables), effort_(effort), stop_(std::move(stop)) {
  CollectShapes();
}

void Candidates::CollectShapes() {
  for (int tensor : TensorChoices(tables_.Problem())) {
    const auto ideal = IdealGroups(tables_, tensor);
    if (ideal.empty()) continue;
    std::vector<const Side*> sides;
    for (auto& groups : AllBundlings(tables_, tensor)) {
      GroupOrders orders = OrdersOf(tables_, groups);
      sides_.push_back(std::make_unique<Side>(Side{std::move(groups), std::move(orders)}));
      sides.push_back(sides_.back().get());
    }
    ShapeBound bound(tables_, ideal);
    for (const ShapeRange& range : AllShapes(tables_.Problem(), tensor, ideal)) {
      if (stop_.stop_requested()) return;
      const double seconds = bound.Of(range);
      bound_ = std::min(bound_, seconds);
      if (!std::isfinite(seconds)) continue;
      for (const Side* side : sides) shapes_.push_back({seconds, range, side});
    }
  }
  std::stable_sort(shapes_.begin(), shapes_.end(),
                   [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
}

void Candidates::Seed() {
  constexpr std::size_t kAlways = 40;
  std::size_t seeded = 0;
  for (const Bounded& shape : shapes_) {
    // Some shapes are seeded only to be shown beside the winner.
    if (shape.bound >= best_seed_ && seeded >= kAlways) return;
    if (seeded >= effort_.shapes && std::isfinite(best_seed_)) break;
    ++seeded;
    SeedOne(shape);
  }
  if (seeded == shapes_.size()) return;
  SeedFamilies();
  for (int round = 0; round < effort_.rounds; ++round) SeedNeighbours();
}

bool Candidates::SeedOne(const Shape& shape, const Side* side) {
  if (stop_.stop_requested()) return false;
  if (!known_
           .insert(
               {side, shape.stages, shape.data, shape.micro_batch, shape.recompute, shape.shard})
           .second)
    return false;
  Arrangement arrangement(tables_, side->groups, shape);
  std::vector<std::pair<double, Placement>> seeds;
  for (Placement& seed : SeedsOf(tables_, side->groups, side->orders, shape))
    if (const double score = arrangement.Set(seed); std::isfinite(score))
      seeds.emplace_back(score, std::move(seed));
  if (seeds.empty()) return false;
  Descend(arrangement, seeds);
  Candidate candidate{shape, side, std::move(seeds.front().second), seeds.front().first, {}};
  constexpr std::size_t kSeeds = 5;
  for (std::size_t i = 1; i < std::min(seeds.size(), kSeeds); ++i)
    candidate.others.push_back(std::move(seeds[i].second));
  best_seed_ = std::min(best_seed_, candidate.score);
  candidates_.push_back(std::move(candidate));
  return true;
}

/// First placements balance the stages' computation. A few changes then adapt the cuts and the
/// order of stages to the exchange of gradients.
void Candidates::Descend(Arrangement& arrangement,
                         std::vector<std::pair<double, Placement>>& seeds) {
  const auto sort = [&] {
    std::stable_sort(seeds.begin(), seeds.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  };
  sort();
  if (arrangement.GetShape().stages == 1 || effort_.descent == 0) return;
  constexpr std::size_t kDescents = 2;
  constexpr double kMostGain = 0.7;  // the least share of its score that a descent leaves
  const Shape& shape = arrangement.GetShape();
  const std::int64_t evaluations =
      std::max<std::int64_t>(shape.stages, effort_.descent / shape.Groups());
  for (std::size_t i = 0; i < std::min(seeds.size(), kDescents); ++i) {
    auto& [score, placement] = seeds[i];
    if (score * kMostGain > best_seed_) break;
    arrangement.Set(placement);
    score = ImproveStages(arrangement, evaluations, stop_);
    placement = arrangement.Current();
  }
  sort();
}

/// Seeds the best bound for each tensor size, kind of recomputation and rough number of stages, and
/// for each rough number of stages and replicas. Bounds know little of memory and links.
void Candidates::SeedFamilies() {
  std::set<std::tuple<int, Recompute, int>> known;
  std::set<std::tuple<int, int, int>> known_replicas;
  for (const Bounded& bounded : shapes_) {
    if (bounded.bound >= best_seed_) break;
    const Shape& shape = bounded.range.shape;
    const int stages = std::ilogb(shape.stages);
    const bool first = known.insert({shape.tensor, shape.recompute, stages}).second;
    if (known_replicas.insert({shape.tensor, stages, std::ilogb(shape.data)}).second || first)
      SeedOne(bounded);
  }
}

/// Seeds the neighbours of the best candidates: the most promising numbers of replicas, and those
/// that keep the replicas or the devices.
void Candidates::SeedNeighbours() {
  constexpr std::size_t kExpanded = 4, kReplicas = 2;
  Sort();
  std::vector<Shape> centres;
  for (std::size_t i = 0; i < std::min(kExpanded, candidates_.size()); ++i)
    centres.push_back(candidates_[i].shape);
  std::map<std::tuple<int, int, std::int64_t, Recompute, int>, std::size_t> looked;
  for (const Bounded& bounded : shapes_) {
    if (bounded.bound >= best_seed_) break;
    const Shape& shape = bounded.range.shape;
    bool near = false, keeps = false;
    for (const Shape& centre : centres) {
      if (!Near(shape, centre)) continue;
      near = true;
      keeps = keeps || KeepsReplicas(bounded.range, centre);
    }
    if (!near) continue;
    auto& count =
        looked[{shape.tensor, shape.stages, shape.micro_batch, shape.recompute, shape.shard}];
    if (count++ < kReplicas || keeps) SeedOne(bounded);
  }
}

std::size_t Candidates::SeedReplicas(std::size_t count) {
  Sort();
  std::vector<std::pair<Shape, const Side*>> centres;
  for (std::size_t i = 0; i < std::min(count, candidates_.size()); ++i)
    centres.emplace_back(candidates_[i].shape, candidates_[i].side);
  std::size_t fresh = 0;
  for (const auto& [centre, side] : centres) {
    const auto& asked = tables_.Problem().choices.data;
    const std::int64_t units =
        tables_.Problem().global_batch / std::max<std::int64_t>(1, centre.micro_batch);
    const int most = static_cast<int>(std::min(
        {tables_.Problem().InMicroBatches(centre.stages, centre.micro_batch)
             ? units
             : tables_.Problem().global_batch,
         static_cast<std::int64_t>(side->groups.size()) / centre.stages,
         std::int64_t{tables_.Problem().choices.MostReplicas(centre.stages, centre.tensor)}}));
    for (int apart = 1; apart <= std::max(1, centre.data / 8); apart *= 2) {
      for (const int data : {centre.data - apart, centre.data + apart}) {
        if (data < 1 || data > most) continue;
        if (!asked.empty() && std::find(asked.begin(), asked.end(), data) == asked.end()) continue;
        Shape shape = centre;
        shape.data = data;
        fresh += SeedOne(shape, side) ? 1 : 0;
      }
    }
  }
  return fresh;
}

void Candidates::Sort() {
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
}

}  // namespace adaptive_train
