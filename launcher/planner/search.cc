#include "launcher/planner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/local_search.h"
#include "launcher/planner/no_plan.h"
#include "launcher/planner/seeds.h"

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Evaluations in all, weighed by what one costs: fewer of larger problems.
struct Effort {
  std::size_t seeded = 0;       // shapes that get first placements
  std::size_t improved = 0;     // shapes that get local search
  std::int64_t short_run = 0;   // evaluations of a shape's local search
  std::int64_t middle_run = 0;  // of the better ones
  std::int64_t long_run = 0;    // of each of the best few
  int rounds = 0;               // of neighbours of the best shapes
};

Effort EffortFor(const PlanProblem& problem) {
  const auto n = static_cast<double>(problem.devices.size());
  const auto scaled = [&](double at_8, double power, double least) {
    return std::max(least, at_8 / std::pow(std::max(1.0, n / 8), power));
  };
  return {static_cast<std::size_t>(scaled(4000, 0.6, 100)),
          static_cast<std::size_t>(scaled(150, 0.5, 12)),
          static_cast<std::int64_t>(scaled(1500, 0.25, 100)),
          static_cast<std::int64_t>(scaled(8000, 0.4, 300)),
          static_cast<std::int64_t>(scaled(30000, 0.4, 1000)),
          4};
}

/// Everything that belongs to one way to bundle devices to tensor ranks.
struct Side {
  std::vector<Group> groups;
  GroupOrders orders;
};

/// A shape and the best placement of it so far.
struct Candidate {
  Shape shape;
  const Side* side = nullptr;
  Placement placement;
  double score = kInfinity;
  std::vector<Placement> others;  // the next best to start from
};

class Search {
 public:
  Search(const PlanProblem& problem, const Effort& effort)
      : problem_(problem), tables_(problem), effort_(effort) {}

  std::optional<FoundLayout> Run() {
    CollectShapes();
    Seed();
    if (candidates_.empty()) return std::nullopt;
    ImproveAll();
    if (candidates_.front().score >= Arrangement::kImpossible) return std::nullopt;
    return Answer();
  }

 private:
  struct Bounded {
    double bound;
    ShapeRange range;
    const Side* side;
  };

  void CollectShapes() {
    for (int tensor : TensorChoices(problem_)) {
      const auto ideal = IdealGroups(tables_, tensor);
      if (ideal.empty()) continue;
      std::vector<const Side*> sides;
      for (auto& groups : AllBundlings(tables_, tensor)) {
        GroupOrders orders = OrdersOf(tables_, groups);
        sides_.push_back(std::make_unique<Side>(Side{std::move(groups), std::move(orders)}));
        sides.push_back(sides_.back().get());
      }
      ShapeBound bound(tables_, ideal);
      for (const ShapeRange& range : AllShapes(problem_, tensor, static_cast<int>(ideal.size()))) {
        const double seconds = bound.Of(range);
        bound_ = std::min(bound_, seconds);
        if (!std::isfinite(seconds)) continue;
        for (const Side* side : sides) shapes_.push_back({seconds, range, side});
      }
    }
    std::stable_sort(shapes_.begin(), shapes_.end(),
                     [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
  }

  /// The best first placement of shapes, most promising first, until no other can win or the
  /// effort is spent; then, of more shapes than that, neighbours of the best.
  void Seed() {
    constexpr std::size_t kAlways = 40;
    is_seeded_.assign(shapes_.size(), false);
    std::size_t seeded = 0;
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      // Some are looked at only to be shown beside the winner.
      if (shapes_[i].bound >= best_seed_ && seeded >= kAlways) return;
      if (seeded >= effort_.seeded && std::isfinite(best_seed_)) break;
      ++seeded;
      SeedOne(i);
    }
    if (seeded == shapes_.size()) return;
    SeedFamilies();
    for (int round = 0; round < effort_.rounds; ++round) SeedNeighbours();
  }

  void SeedOne(std::size_t index) {
    if (is_seeded_[index]) return;
    is_seeded_[index] = true;
    const Bounded& bounded = shapes_[index];
    Candidate candidate{bounded.range.shape, bounded.side, {}, kInfinity, {}};
    Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
    std::vector<std::pair<double, Placement>> seeds;
    for (Placement& seed :
         SeedsOf(tables_, candidate.side->groups, candidate.side->orders, candidate.shape))
      if (const double score = arrangement.Set(seed); std::isfinite(score))
        seeds.emplace_back(score, std::move(seed));
    if (seeds.empty()) return;
    std::stable_sort(seeds.begin(), seeds.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    candidate.score = seeds.front().first;
    candidate.placement = std::move(seeds.front().second);
    constexpr std::size_t kSeeds = 5;
    for (std::size_t i = 1; i < std::min(seeds.size(), kSeeds); ++i)
      candidate.others.push_back(std::move(seeds[i].second));
    best_seed_ = std::min(best_seed_, candidate.score);
    candidates_.push_back(std::move(candidate));
  }

  /// The best bound of each number of tensor ranks, kind of recomputation and about as many stages:
  /// bounds know little of what memory and links allow.
  void SeedFamilies() {
    std::set<std::tuple<int, Recompute, int>> known;
    for (std::size_t i = 0; i < shapes_.size() && shapes_[i].bound < best_seed_; ++i) {
      const Shape& shape = shapes_[i].range.shape;
      if (known.insert({shape.tensor, shape.recompute, std::ilogb(shape.stages)}).second)
        SeedOne(i);
    }
  }

  /// What is one decision away from the best candidates, with the numbers of replicas that promise
  /// most.
  void SeedNeighbours() {
    constexpr std::size_t kExpanded = 4, kReplicas = 2;
    Sort();
    std::vector<Shape> centres;
    for (std::size_t i = 0; i < std::min(kExpanded, candidates_.size()); ++i)
      centres.push_back(candidates_[i].shape);
    std::map<std::tuple<int, int, std::int64_t, Recompute, int>, std::size_t> looked;
    for (std::size_t i = 0; i < shapes_.size() && shapes_[i].bound < best_seed_; ++i) {
      const Shape& shape = shapes_[i].range.shape;
      if (std::none_of(centres.begin(), centres.end(),
                       [&](const Shape& centre) { return Near(shape, centre); }))
        continue;
      auto& count =
          looked[{shape.tensor, shape.stages, shape.micro_batch, shape.recompute, shape.shard}];
      if (count++ < kReplicas) SeedOne(i);
    }
  }

  static bool Near(const Shape& shape, const Shape& centre) {
    const auto near = [](auto a, auto b) { return a <= 2 * b && b <= 2 * a; };
    const int differ = (shape.tensor != centre.tensor) + (shape.stages != centre.stages) +
                       (shape.micro_batch != centre.micro_batch) +
                       (shape.recompute != centre.recompute) + (shape.shard != centre.shard);
    const int apart = std::abs(shape.stages - centre.stages);
    return differ <= 1 && near(shape.tensor, centre.tensor) && near(shape.stages, centre.stages) &&
           (apart <= 2 || apart % 4 == 0) && near(shape.micro_batch, centre.micro_batch);
  }

  void Better(Candidate& candidate, std::int64_t evaluations) {
    Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
    arrangement.Set(candidate.placement);
    Improve(arrangement, evaluations);
    candidate.score = arrangement.Polish();
    candidate.placement = arrangement.Current();
  }

  void Sort() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
  }

  void ImproveAll() {
    constexpr std::size_t kBestFew = 6;
    ImproveBest(effort_.improved, effort_.short_run);
    StartAgain(std::max(kBestFew, effort_.improved / 4));
    ImproveBest(std::max(kBestFew, effort_.improved / 4), effort_.middle_run);
    ImproveBest(kBestFew, effort_.long_run);
    Sort();
  }

  /// The nearest minimum of the best first placement need not be the lowest.
  void StartAgain(std::size_t count) {
    Sort();
    for (std::size_t i = 0; i < std::min(count, candidates_.size()); ++i) {
      for (const Placement& other : candidates_[i].others) {
        Candidate again{candidates_[i].shape, candidates_[i].side, other, kInfinity, {}};
        Better(again, effort_.short_run);
        if (again.score >= candidates_[i].score) continue;
        candidates_[i].score = again.score;
        candidates_[i].placement = std::move(again.placement);
      }
    }
  }

  void ImproveBest(std::size_t count, std::int64_t evaluations) {
    Sort();
    for (std::size_t i = 0; i < std::min(count, candidates_.size()); ++i)
      Better(candidates_[i], evaluations);
  }

  Layout LayoutOf(const Candidate& candidate) {
    Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
    arrangement.Set(candidate.placement);
    arrangement.Polish();
    return arrangement.ToLayout();
  }

  FoundLayout Answer() {
    FoundLayout found;
    found.layout = LayoutOf(candidates_.front());
    found.cost = CostOf(problem_, found.layout);
    found.bound = bound_;
    AddAlternatives(found);
    return found;
  }

  /// The best candidate that differs from the winner in each one decision.
  void AddAlternatives(FoundLayout& found) {
    const Shape& won = candidates_.front().shape;
    struct Difference {
      const char* name;
      bool (*differs)(const Shape&, const Shape&);
    };
    static constexpr Difference kDifferences[] = {
        {"other number of stages",
         [](const Shape& a, const Shape& b) { return a.stages != b.stages; }},
        {"other number of replicas",
         [](const Shape& a, const Shape& b) { return a.data != b.data; }},
        {"other number of tensor ranks",
         [](const Shape& a, const Shape& b) { return a.tensor != b.tensor; }},
        {"other micro-batch",
         [](const Shape& a, const Shape& b) {
           return a.stages == b.stages && a.micro_batch != b.micro_batch;
         }},
        {"other recomputation",
         [](const Shape& a, const Shape& b) { return a.recompute != b.recompute; }},
        {"other shard", [](const Shape& a, const Shape& b) { return a.shard != b.shard; }}};
    std::vector<const Candidate*> taken;
    for (const Difference& difference : kDifferences) {
      for (const Candidate& candidate : candidates_) {
        if (candidate.score >= Arrangement::kImpossible) break;
        if (!difference.differs(candidate.shape, won)) continue;
        if (std::find(taken.begin(), taken.end(), &candidate) != taken.end()) break;
        taken.push_back(&candidate);
        const Layout layout = LayoutOf(candidate);
        found.alternatives.push_back(
            {difference.name, WordsOf(layout), CostOf(problem_, layout).step});
        break;
      }
    }
    std::stable_sort(found.alternatives.begin(), found.alternatives.end(),
                     [](const Alternative& a, const Alternative& b) {
                       return *a.step_seconds < *b.step_seconds;
                     });
  }

  const PlanProblem& problem_;
  SearchTables tables_;
  Effort effort_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<Bounded> shapes_;
  std::vector<bool> is_seeded_;  // index = shape
  double best_seed_ = kInfinity;
  std::vector<Candidate> candidates_;
  double bound_ = kInfinity;
};

/// Whichever is better: simpler planners are lucky now and then.
void TakeBetter(const PlanProblem& problem, std::optional<FoundLayout>& found) {
  for (Comparison other :
       {EvenStatic(problem), DataParallelOnly(problem), GreedyColocation(problem)}) {
    if (!other.layout || (found && found->cost.step <= other.cost->step)) continue;
    if (!found) found = FoundLayout{{}, {}, LowerBound(problem), {}};
    found->layout = std::move(*other.layout);
    found->cost = *other.cost;
  }
}

}  // namespace

Result<FoundLayout> FindLayout(const PlanProblem& problem) {
  if (auto sound = CheckProblem(problem); !sound) return tl::unexpected(sound.error());
  auto found = Search(problem, EffortFor(problem)).Run();
  TakeBetter(problem, found);
  if (!found) return tl::unexpected(WhyNoPlan(problem));
  return std::move(*found);
}

std::optional<Layout> FindAnyLayout(const PlanProblem& problem) {
  auto found = Search(problem, {60, 6, 200, 0, 0, 1}).Run();
  if (!found) return std::nullopt;
  return std::move(found->layout);
}

}  // namespace adaptive_train
