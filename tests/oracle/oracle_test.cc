// The subset oracle against brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/oracle/brute_force.h"
#include "tests/oracle/exact_ring.h"
#include "tests/oracle/judge.h"
#include "tests/oracle/random_problem.h"
#include "tests/oracle/subset_oracle.h"

namespace adaptive_train::oracle::oracle_test {
namespace {

/// None where both say that there is none.
std::optional<Layout> ExpectSame(const PlanProblem& problem) {
  const std::optional<Best> all = TryAll(problem), best = FindBest(problem);
  EXPECT_EQ(all.has_value(), best.has_value());
  if (!all || !best) return {};
  EXPECT_NEAR(best->step, all->step, 1e-9 * all->step);
  const Judgement judgement = Judge(problem, best->layout);
  EXPECT_TRUE(judgement.fits);
  EXPECT_NEAR(judgement.step, best->step, 1e-9 * best->step);
  return best->layout;
}

/// 400 problems; among them some that cannot be planned, and all kinds of best plans.
TEST(SubsetOracle, FindsWhatBruteForceFinds) {
  int impossible = 0, pipelines = 0, replicas = 0, tensors = 0, both = 0, recomputed = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const std::optional<Layout> layout = ExpectSame(TinyProblem(seed));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    impossible += !layout;
    if (!layout) continue;
    pipelines += layout->Stages() > 1;
    replicas += layout->data > 1;
    both += layout->Stages() > 1 && layout->data > 1;
    tensors += layout->tensor > 1;
    recomputed += layout->recompute != Recompute::kNone;
  }
  EXPECT_GT(impossible, 20);
  EXPECT_LT(impossible, 150);
  EXPECT_GT(pipelines, 80);
  EXPECT_GT(replicas, 100);
  EXPECT_GT(both, 20);
  EXPECT_GT(tensors, 8);
  EXPECT_GT(recomputed, 40);
}

/// Here labels of several replicas meet, and what they exchange decides.
TEST(SubsetOracle, FindsTheBestOfThreeStagesOfTwoReplicas) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    PlanProblem problem = TinyProblem(seed);
    if (problem.layers.size() < 5) continue;
    for (std::size_t i = 0; problem.devices.size() < 6; ++i)
      problem.devices.push_back(problem.devices[i]);
    for (DeviceKind& kind : problem.kinds)
      for (std::size_t layer = 0; layer < kind.layers.size(); ++layer)
        kind.layers[layer].update *= 5.0 * static_cast<double>(1 + layer * seed % 7);
    problem.choices = {{2}, {1}, {3}, {1}, {problem.choices.recompute.front()}, {0}};
    problem.global_batch = 4;
    found += ExpectSame(problem).has_value();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(found, 20);
}

/// Last micro-batches of uneven size, behind which more or less of the exchange hides.
TEST(SubsetOracle, SharesSamplesOfASingleStageExactly) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    PlanProblem problem = TinyProblem(seed);
    problem.global_batch = 11;
    problem.choices = {{}, {1}, {1}, {2 + static_cast<int>(seed % 3)}, {Recompute::kNone}, {0}};
    for (ProblemDevice& device : problem.devices) device.memory_bytes *= 100;
    for (DeviceKind& kind : problem.kinds)
      for (LayerSeconds& layer : kind.layers) layer.forward.fixed += layer.forward.per_sample;
    ASSERT_TRUE(ExpectSame(problem)) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(ExactRing, FindsTheBestOrder) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Draws draws(seed);
    const int members = draws.Integer(2, 6);
    PlanProblem problem;
    problem.links = LinkTable(static_cast<std::size_t>(members));
    for (int from = 0; from < members; ++from)
      for (int to = 0; to < members; ++to)
        problem.links.At(from, to) = {draws.Uniform(0, 1), draws.OneOf({1.0, 2.0, 3.0})};
    std::vector<int> nodes(static_cast<std::size_t>(members));
    for (int& node : nodes) node = draws.Integer(0, members - 1);
    const auto better = [](const RingLinks& one, const RingLinks& other) {
      return one.bytes_per_second > other.bytes_per_second ||
             (one.bytes_per_second == other.bytes_per_second && one.latency_s < other.latency_s);
    };
    const ExactRing ring = BestRingOf(problem, nodes);
    std::vector<int> order(static_cast<std::size_t>(members));
    std::iota(order.begin(), order.end(), 0);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), ring.order.begin()));
    RingLinks best{0, 0};
    do {
      std::vector<int> visited;
      for (const int member : order) visited.push_back(nodes[static_cast<std::size_t>(member)]);
      const RingLinks links = LinksOfRing(problem, visited);
      if (better(links, best)) best = links;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(ring.links.bytes_per_second, best.bytes_per_second) << "seed " << seed;
    EXPECT_EQ(ring.links.latency_s, best.latency_s) << "seed " << seed;
  }
}

}  // namespace
}  // namespace adaptive_train::oracle::oracle_test
