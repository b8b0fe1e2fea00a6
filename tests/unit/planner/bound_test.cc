// The lower bound holds and is tight.
#include "launcher/planner/bound.h"

#include <gtest/gtest.h>

#include "launcher/planner/layout.h"
#include "launcher/planner/rates.h"
#include "launcher/planner/search.h"
#include "launcher/planner/stage_room.h"
#include "tests/oracle/random_problem.h"
#include "tests/oracle/subset_oracle.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::bound_test {
namespace {

TEST(LowerBound, IsNeverAboveTheProvenBest) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const PlanProblem problem = oracle::SmallProblem(seed);
    const auto best = oracle::FindBest(problem);
    if (!best) continue;
    EXPECT_LE(LowerBound(problem), best->step * (1 + 1e-12)) << "seed " << seed;
  }
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const PlanProblem problem = oracle::TinyProblem(seed);
    const auto best = oracle::FindBest(problem);
    if (!best) continue;
    EXPECT_LE(LowerBound(problem), best->step * (1 + 1e-12)) << "seed " << seed;
  }
}

TEST(LowerBound, IsExactForEqualDevicesWithoutLinksToWaitFor) {
  const PlanProblem problem = ProblemOf({1, 1, 1, 1}, 2, 8);
  EXPECT_NEAR(LowerBound(problem), 2 * 2 * 3, 1e-6);
}

TEST(LowerBound, CountsTheRingThatMemoryForces) {
  // Two replicas of a model whose gradients take long; alone, a device would take 24 seconds.
  PlanProblem problem = ProblemOf({1, 1}, 2, 4);
  problem.links = LinkTable(2, {0, 10});
  problem.choices.data = {2};
  problem.choices.pipeline = {1};
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found);
  EXPECT_NEAR(LowerBound(problem), found->cost.step, 0.01 * found->cost.step);
}

TEST(MostRate, KeepsGroupsWithoutRoomOutOfLargeStages) {
  // One strong and one weak group, two stages: the weak one has room for a quarter of the work.
  const GroupKind weak{0, 10, 1, 1.0, {0.25, 0.25}}, strong{1, 100, 1, 1.0, {1, 1}};
  EXPECT_NEAR(MostRate({weak, strong}, 2, 1), 1 / 0.75, 1e-12);
  EXPECT_NEAR(MostRate({strong}, 1, 1), 1, 1e-12);
  const GroupKind two_weak{0, 10, 2, 1.0, {0.25, 0.25}};
  EXPECT_EQ(MostRate({two_weak}, 2, 1), 0);
}

TEST(SecondsToFill, LeavesOutWhatIsTooSlow) {
  EXPECT_DOUBLE_EQ(SecondsToFill({{2, 1}, {1, 2}}, 1), 1);  // 2 T - 1, the others idle
  EXPECT_DOUBLE_EQ(SecondsToFill({{2, 1}, {1, 2}}, 5), (5 + 3) / 4.0);
  EXPECT_EQ(SecondsToFill({{2, 1}}, 0), 0);
}

}  // namespace
}  // namespace adaptive_train::bound_test
