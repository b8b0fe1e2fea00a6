#include "launcher/planner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "launcher/planner/candidates.h"
#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/local_search.h"
#include "launcher/planner/no_plan.h"

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The number of evaluations, weighted by their cost: fewer for larger problems.
struct Effort {
  SeedEffort seeding;
  std::size_t improved = 0;     // shapes that get local search
  std::int64_t short_run = 0;   // evaluations of a shape's local search
  std::int64_t middle_run = 0;  // of the better ones
  std::int64_t long_run = 0;    // of each of the best few
};

Effort EffortFor(const PlanProblem& problem) {
  const auto n = static_cast<double>(problem.devices.size());
  const auto scaled = [&](double at_8, double power, double least) {
    return std::max(least, at_8 / std::pow(std::max(1.0, n / 8), power));
  };
  constexpr double kDescents = 6e6;  // evaluations of one group's, of all seeds
  const double seeded = scaled(4000, 0.6, 100);
  return {{static_cast<std::size_t>(seeded), static_cast<std::int64_t>(kDescents / seeded), 4},
          static_cast<std::size_t>(scaled(150, 0.5, 12)),
          static_cast<std::int64_t>(scaled(1500, 0.25, 100)),
          static_cast<std::int64_t>(scaled(8000, 0.4, 300)),
          static_cast<std::int64_t>(scaled(30000, 0.4, 1000))};
}

class Search {
 public:
  Search(const PlanProblem& problem, const Effort& effort, const std::stop_token& stop = {})
      : problem_(problem),
        stop_(stop),
        tables_(problem),
        effort_(effort),
        candidates_(tables_, effort.seeding, stop),
        all_(candidates_.All()) {}

  std::optional<FoundLayout> Run() {
    candidates_.Seed();
    if (all_.empty()) return std::nullopt;
    ImproveAll();
    if (stop_.stop_requested()) return std::nullopt;
    if (all_.front().score >= Arrangement::kImpossible) return std::nullopt;
    return Answer();
  }

 private:
  void Better(Candidate& candidate, std::int64_t evaluations) {
    if (stop_.stop_requested()) return;
    Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
    arrangement.Set(candidate.placement);
    Improve(arrangement, evaluations, stop_);
    candidate.score = arrangement.Polish();
    candidate.placement = arrangement.Current();
  }

  void ImproveAll() {
    constexpr std::size_t kBestFew = 6;
    ImproveBest(effort_.improved, effort_.short_run);
    TryOtherReplicas();
    StartAgain(std::max(kBestFew, effort_.improved / 4));
    ImproveBest(std::max(kBestFew, effort_.improved / 4), effort_.middle_run);
    ImproveBest(kBestFew, effort_.long_run);
    candidates_.Sort();
  }

  /// Tries numbers of replicas around those of the best shapes; so far one stood for its range.
  void TryOtherReplicas() {
    constexpr int kRounds = 2;
    constexpr std::size_t kCentres = 4;
    constexpr double kMostGain = 0.9;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t fresh = candidates_.SeedReplicas(kCentres);
      if (fresh == 0) return;
      double best = kInfinity;
      for (const Candidate& candidate : all_) best = std::min(best, candidate.score);
      for (std::size_t i = all_.size() - fresh; i < all_.size(); ++i)
        if (all_[i].score * kMostGain < best) Better(all_[i], effort_.short_run);
    }
  }

  /// The nearest minimum of the best first placement need not be the global one.
  void StartAgain(std::size_t count) {
    candidates_.Sort();
    for (std::size_t i = 0; i < std::min(count, all_.size()); ++i) {
      for (const Placement& other : all_[i].others) {
        Candidate again{all_[i].shape, all_[i].side, other, kInfinity, {}};
        Better(again, effort_.short_run);
        if (again.score >= all_[i].score) continue;
        all_[i].score = again.score;
        all_[i].placement = std::move(again.placement);
      }
    }
  }

  void ImproveBest(std::size_t count, std::int64_t evaluations) {
    candidates_.Sort();
    for (std::size_t i = 0; i < std::min(count, all_.size()); ++i) Better(all_[i], evaluations);
  }

  Layout LayoutOf(const Candidate& candidate) {
    Arrangement arrangement(tables_, candidate.side->groups, candidate.shape);
    arrangement.Set(candidate.placement);
    arrangement.Polish();
    return arrangement.ToLayout();
  }

  FoundLayout Answer() {
    FoundLayout found;
    found.layout = LayoutOf(all_.front());
    found.cost = CostOf(problem_, found.layout);
    found.bound = candidates_.Bound();
    AddAlternatives(found);
    return found;
  }

  /// For each decision, the best candidate that differs from the winner in it.
  void AddAlternatives(FoundLayout& found) {
    const Shape& won = all_.front().shape;
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
      for (const Candidate& candidate : all_) {
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
  const std::stop_token stop_;
  SearchTables tables_;
  Effort effort_;
  Candidates candidates_;
  std::vector<Candidate>& all_;
};

/// Takes the result of a simpler planner if it happens to be better.
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

Result<FoundLayout> FindLayout(const PlanProblem& problem, const std::stop_token& stop) {
  if (auto sound = CheckProblem(problem); !sound) return tl::unexpected(sound.error());
  auto found = Search(problem, EffortFor(problem), stop).Run();
  if (stop.stop_requested()) return Fail("planning was stopped", ExitCode::kNoPlan);
  TakeBetter(problem, found);
  if (!found) return tl::unexpected(WhyNoPlan(problem));
  return std::move(*found);
}

std::optional<Layout> FindAnyLayout(const PlanProblem& problem) {
  auto found = Search(problem, {{60, 1000, 1}, 6, 200, 0, 0}).Run();
  if (!found) return std::nullopt;
  return std::move(found->layout);
}

}  // namespace adaptive_train
