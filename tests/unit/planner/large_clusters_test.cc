// Clusters of 64 devices: plans are consistent, and close to the bound.
#include <gtest/gtest.h>

#include <cstdio>

#include "core/limits.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/search.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::large_clusters_test {
namespace {

TEST(LowerBound, AtSixtyFourDevicesIsWithinFifteenPercentOnAverage) {
  double sum = 0, worst = 0;
  constexpr int kSeeds = 20;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const PlanProblem problem = oracle::LargeProblem(seed);
    const auto found = FindLayout(problem);
    ASSERT_TRUE(found) << "seed " << seed << ": " << found.error().message;
    const auto sound = CheckLayout(problem, found->layout);
    ASSERT_TRUE(sound) << "seed " << seed << ": " << sound.error().message;
    ASSERT_LE(found->bound, found->cost.step * (1 + 1e-12)) << "seed " << seed;
    const double gap = found->cost.step / found->bound - 1;
    sum += gap;
    worst = std::max(worst, gap);
  }
  RecordProperty("mean_gap_percent", std::to_string(100 * sum / kSeeds));
  std::printf("gap to the bound at 64 devices: mean %.1f %%, worst %.1f %%\n", 100 * sum / kSeeds,
              100 * worst);
  EXPECT_LE(sum / kSeeds, 0.15);
}

TEST(FindLayout, OfFiveThousandDevicesKeepsToWhatCanTrainTogether) {
  // Slow devices on fast links: each one more pays.
  PlanProblem problem;
  problem.global_batch = 20000;
  problem.layers.resize(2);
  for (ProblemLayer& layer : problem.layers) layer.parameter_bytes = layer.gradient_bytes = 100;
  problem.kinds.push_back({"slow", true, {{{0, 1}, {0, 2}, 0}, {{0, 1}, {0, 2}, 0}}, 0});
  for (int d = 0; d < 5000; ++d) problem.devices.push_back({0, d / 1000, 1e12, 1});
  problem.links = LinkTable(5, {0, 1e12});
  problem.node_names = {"a", "b", "c", "d", "e"};
  problem.choices.pipeline = {1};
  problem.choices.micro_batch = {1};
  problem.choices.most_ranks = kMostRanks;
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(CheckLayout(problem, found->layout));
  EXPECT_LE(found->layout.data, 4096);
  EXPECT_GE(found->layout.data, 4000);  // as many micro-batches each
}

}  // namespace
}  // namespace adaptive_train::large_clusters_test
