#include "tests/oracle/planner_gap.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/planner/layout.h"
#include "launcher/planner/search.h"
#include "tests/oracle/exact_ring.h"
#include "tests/oracle/judge.h"
#include "tests/oracle/subset_oracle.h"

namespace adaptive_train::oracle {
namespace {

std::string Listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string InWords(const PlanProblem& problem, const Layout& layout) {
  std::string shares;
  for (const ReplicaShare& share : layout.shares)
    shares += fmt::format(" {}/{}", share.samples, share.micro_batch);
  const Judgement judgement = Judge(problem, layout);
  return fmt::format(
      "{:.6g} s (replica {:.6g}, exchange and update {:.6g}, tied {:.6g}): {} stages, {} replicas, "
      "{} tensor ranks, cut {}, devices {}, shares{}, recompute {}, shard {}",
      judgement.step, judgement.replica, judgement.exchange, judgement.tied, layout.Stages(),
      layout.data, layout.tensor, Listed(layout.cut), Listed(layout.devices), shares,
      static_cast<int>(layout.recompute), layout.shard);
}

/// The same with the rings and the compression that docs/planning.md calls best. A ring of lower
/// bandwidth and latency may be better still: the planner may have it, the oracle never does.
Layout ByTheRule(const PlanProblem& problem, Layout layout) {
  layout.rings.clear();
  for (int stage = 0; stage < layout.Stages(); ++stage) {
    std::vector<int> nodes;
    for (int replica = 0; replica < layout.data; ++replica) {
      const int device = layout.devices[layout.DeviceIndex(stage, replica, 0)];
      nodes.push_back(problem.devices[static_cast<std::size_t>(device)].node);
    }
    const ExactRing ring = BestRingOf(problem, nodes);
    layout.rings.push_back(ring.order);
    for (int layer = layout.cut[static_cast<std::size_t>(stage)];
         layer < layout.cut[static_cast<std::size_t>(stage) + 1]; ++layer)
      layout.compressed[static_cast<std::size_t>(layer)] =
          Compresses(problem, layer, ring.links, layout.data);
  }
  return layout;
}

/// The planner's gap to `best`.
double GapOf(const PlanProblem& problem, const FoundLayout& found, const Best& best,
             std::uint64_t seed) {
  const Result<void> sound = CheckLayout(problem, found.layout);
  EXPECT_TRUE(sound) << "seed " << seed << ": " << sound.error().message;
  if (!sound) return 0;
  const Judgement judgement = Judge(problem, found.layout);
  EXPECT_TRUE(judgement.fits) << "seed " << seed;
  EXPECT_NEAR(found.cost.step, judgement.step, 1e-9 * judgement.step) << "seed " << seed;
  EXPECT_LE(found.bound, best.step * (1 + 1e-9)) << "seed " << seed << ": the bound is too high";
  const double gap = judgement.step / best.step - 1;
  EXPECT_GE(Judge(problem, ByTheRule(problem, found.layout)).step, best.step * (1 - 1e-9))
      << "seed " << seed << ": better than the best; planner " << InWords(problem, found.layout)
      << "; oracle " << InWords(problem, best.layout);
  if (gap > 0.01)
    fmt::print("seed {}: {:.2f} % off\n  planner {}\n  oracle  {}\n", seed, 100 * gap,
               InWords(problem, found.layout), InWords(problem, best.layout));
  return std::max(gap, 0.0);
}

}  // namespace

Gaps MeasureGaps(PlanProblem (*problem_of)(std::uint64_t seed), std::uint64_t first,
                 std::uint64_t end) {
  Gaps gaps;
  double sum = 0;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    const PlanProblem problem = problem_of(seed);
    const Result<void> sound = CheckProblem(problem);
    EXPECT_TRUE(sound) << "seed " << seed << ": " << sound.error().message;
    if (!sound) continue;
    const std::optional<Best> best = FindBest(problem);
    const Result<FoundLayout> found = FindLayout(problem);
    EXPECT_EQ(found.has_value(), best.has_value())
        << "seed " << seed << ": "
        << (best ? found.error().message + "; oracle " + InWords(problem, best->layout)
                 : "the planner found what cannot be");
    if (!found || !best) {
      gaps.impossible += !found && !best;
      continue;
    }
    const double gap = GapOf(problem, *found, *best, seed);
    sum += gap;
    gaps.worst = std::max(gaps.worst, gap);
    gaps.far += gap > 0.05;
    ++gaps.possible;
  }
  gaps.mean = gaps.possible > 0 ? sum / gaps.possible : 0;
  fmt::print(
      "{} clusters planned, {} rightly refused: mean gap {:.3f} %, worst {:.3f} %, {} above 5 %\n",
      gaps.possible, gaps.impossible, 100 * gaps.mean, 100 * gaps.worst, gaps.far);
  return gaps;
}

}  // namespace adaptive_train::oracle
