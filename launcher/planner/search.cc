#include "launcher/planner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
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
  std::size_t seeded = 0;      // shapes that get first placements
  std::size_t improved = 0;    // shapes that get local search
  std::int64_t short_run = 0;  // evaluations of a shape's local search
  std::int64_t long_run = 0;   // of each of the best few
};

Effort EffortFor(const PlanProblem& problem) {
  const auto n = static_cast<double>(problem.devices.size());
  const auto scaled = [&](double at_8, double power, double least) {
    return std::max(least, at_8 / std::pow(std::max(1.0, n / 8), power));
  };
  return {static_cast<std::size_t>(scaled(4000, 0.6, 100)),
          static_cast<std::size_t>(scaled(150, 0.5, 12)),
          static_cast<std::int64_t>(scaled(1500, 0.25, 100)),
          static_cast<std::int64_t>(scaled(30000, 0.4, 1000))};
}

/// Everything that belongs to one number of tensor ranks.
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
      auto side = std::make_unique<Side>();
      side->groups = MakeGroups(tables_, tensor);
      if (side->groups.empty()) continue;
      side->orders = OrdersOf(tables_, side->groups);
      ShapeBound bound(tables_, side->groups);
      for (const ShapeRange& range :
           AllShapes(problem_, tensor, static_cast<int>(side->groups.size()))) {
        const double seconds = bound.Of(range);
        bound_ = std::min(bound_, seconds);
        if (std::isfinite(seconds)) shapes_.push_back({seconds, range, side.get()});
      }
      sides_.push_back(std::move(side));
    }
    std::stable_sort(shapes_.begin(), shapes_.end(),
                     [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
  }

  /// The best first placement of shapes, most promising first, until no other can win or the
  /// effort is spent.
  void Seed() {
    constexpr std::size_t kAlways = 40;
    double best = kInfinity;
    std::size_t seeded = 0;
    for (const Bounded& bounded : shapes_) {
      // Some are looked at only to be shown beside the winner.
      if (bounded.bound >= best && seeded >= kAlways) break;
      if (seeded >= effort_.seeded && std::isfinite(best)) break;
      ++seeded;
      Candidate candidate{bounded.range.shape, bounded.side, {}, kInfinity};
      Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
      for (Placement& seed :
           SeedsOf(tables_, candidate.side->groups, candidate.side->orders, candidate.shape)) {
        const double score = arrangement.Set(seed);
        if (score >= candidate.score) continue;
        candidate.score = score;
        candidate.placement = std::move(seed);
      }
      if (candidate.placement.cut.empty()) continue;
      best = std::min(best, candidate.score);
      candidates_.push_back(std::move(candidate));
    }
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
    Sort();
    for (std::size_t i = 0; i < std::min(effort_.improved, candidates_.size()); ++i)
      Better(candidates_[i], effort_.short_run);
    Sort();
    constexpr std::size_t kBestFew = 6;
    for (std::size_t i = 0; i < std::min(kBestFew, candidates_.size()); ++i)
      Better(candidates_[i], effort_.long_run);
    Sort();
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
  auto found = Search(problem, {60, 6, 200, 0}).Run();
  if (!found) return std::nullopt;
  return std::move(found->layout);
}

}  // namespace adaptive_train
