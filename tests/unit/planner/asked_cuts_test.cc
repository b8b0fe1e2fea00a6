// Layouts by hand in the planner: kept as they are, on the devices that suit them, or refused with the
// nearest one that fits.
#include "launcher/planner/asked_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/search.h"
#include "launcher/planner/stage_schedule.h"
#include "tests/oracle/random_problem.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::asked_cuts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlanProblem Asking(PlanProblem problem, std::vector<int> cut, int stages) {
  problem.choices.cut = std::move(cut);
  problem.choices.pipeline = {stages};
  return problem;
}

TEST(AskedCuts, AStageHasItsChunksBehindOneAnother) {
  EXPECT_THAT(AskedCuts(ProblemOf({1}, 8, 4), 2), IsEmpty());
  const PlanProblem problem = Asking(ProblemOf({1}, 8, 4), {0, 1, 4, 6, 8}, 2);
  EXPECT_THAT(AskedCuts(problem, 2), ElementsAre(0, 3, 8));
  EXPECT_THAT(AskedCuts(problem, 4), ElementsAre(0, 1, 4, 6, 8));
}

TEST(AskedCuts, TheNearestThatFitAreOnTheWay) {
  const auto fourth_below = [](int most) {
    return [most](const std::vector<int>& cut) { return cut[3] <= most; };
  };
  const std::vector<int> asked{0, 1, 2, 9, 10}, possible{0, 3, 5, 7, 10};
  EXPECT_THAT(NearestCuts(asked, possible, fourth_below(7)), ElementsAre(0, 3, 5, 7, 10));
  EXPECT_THAT(NearestCuts(asked, possible, fourth_below(8)), ElementsAre(0, 2, 3, 8, 10));
  EXPECT_EQ(NearestCuts(asked, asked, fourth_below(9)), asked);
  EXPECT_EQ(LayoutSetting(asked), "parallel.layout = \"E|t|t*7|L\"");
}

TEST(AskedCuts, NoStageOnTheWayIsEmpty) {
  const std::vector<int> asked{0, 7, 8, 9, 10}, possible{0, 1, 2, 3, 10};
  for (int least = 1; least <= 6; ++least) {
    const auto cut = NearestCuts(asked, possible, [&](const auto& c) { return c[1] <= least; });
    for (std::size_t c = 1; c < cut.size(); ++c) EXPECT_LT(cut[c - 1], cut[c]) << least;
    EXPECT_EQ(cut[1], least);
  }
}

TEST(AskedCuts, TheSearchKeepsThemAndChoosesTheDevices) {
  // The longest stage belongs on the fastest device, wherever that is.
  const PlanProblem problem = Asking(ProblemOf({1, 4, 2}, 8, 6), {0, 1, 3, 8}, 3);
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(CheckLayout(problem, found->layout));
  EXPECT_THAT(found->layout.cut, ElementsAre(0, 1, 3, 8));
  EXPECT_THAT(found->layout.devices, ElementsAre(0, 2, 1));
  EXPECT_LE(found->bound, found->cost.step);
  for (const Comparison& other : {EvenStatic(problem), GreedyColocation(problem)}) {
    ASSERT_TRUE(other.layout) << other.what;
    EXPECT_THAT(other.layout->cut, ElementsAre(0, 1, 3, 8)) << other.name;
  }
}

TEST(AskedCuts, AreKeptOnUnevenDevicesWithinTheirBound) {
  int planned = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    PlanProblem problem = oracle::SmallProblem(seed);
    const auto layers = static_cast<int>(problem.layers.size());
    if (layers < 3) continue;
    problem = Asking(problem, {0, layers - 1, layers}, 2);
    const auto found = FindLayout(problem);
    if (!found) continue;
    ++planned;
    EXPECT_EQ(found->layout.cut, problem.choices.cut) << seed;
    EXPECT_TRUE(CheckLayout(problem, found->layout)) << seed;
    EXPECT_LE(found->bound, found->cost.step) << seed;
    // What the free search finds is at least about as good.
    problem.choices.cut.clear();
    const auto free = FindLayout(problem);
    ASSERT_TRUE(free) << seed;
    EXPECT_LE(free->cost.step, 1.02 * found->cost.step) << seed;
  }
  EXPECT_GT(planned, 10);
}

TEST(AskedCuts, TheBoundKnowsTheBusiestStage) {
  const PlanProblem problem = Asking(ProblemOf({1, 1}, 8, 50), {0, 7, 8}, 2);
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_GT(found->bound, 0.95 * found->cost.step);
}

TEST(AskedCuts, WhatDoesNotFitIsRefusedWithTheNearestThatDoes) {
  // Each device holds five layers.
  PlanProblem problem = Asking(ProblemOf({1, 1}, 8, 4), {0, 7, 8}, 2);
  for (ProblemDevice& device : problem.devices) device.memory_bytes = 1050 / kMemoryShare;
  const auto refused = FindLayout(problem);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(refused.error().message,
              HasSubstr("it would fit with parallel.layout = \"Et*4|ttL\""));
  problem.choices.cut = {0, 5, 8};
  EXPECT_TRUE(FindLayout(problem));
}

TEST(AskedCuts, MissingDevicesAreNamedWithTheLayout) {
  PlanProblem problem = Asking(ProblemOf({1, 1, 1}, 8, 4), {0, 1, 2, 3, 8}, 4);
  const auto refused = FindLayout(problem);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("parallel.pipeline = 3 or less, with a parallel.layout of so many stages"));
}

TEST(AskedCuts, RefusesCutsThatAreNone) {
  for (const std::vector<int>& cut : std::vector<std::vector<int>>{
           {0, 8}, {0, 3, 3, 8}, {0, 4, 7}, {1, 4, 8}, {0, 2, 4, 8}, {0}}) {
    const auto refused = FindLayout(Asking(ProblemOf({1, 1}, 8, 4), cut, 2));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().exit_code, ExitCode::kUsage);
    EXPECT_THAT(refused.error().message, HasSubstr("asked for"));
  }
}

TEST(AskedCuts, ChunksAreTakenAsTheyAre) {
  const PlanProblem problem = Asking(ProblemOf({1, 1}, 8, 4), {0, 1, 4, 6, 8}, 2);
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->layout.cut, ElementsAre(0, 3, 8));
  std::vector<std::string> why;
  const auto layout = WithSchedule(problem, found->layout, {{}, 2, false}, why);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_THAT(layout->cut, ElementsAre(0, 1, 4, 6, 8));
  EXPECT_EQ(layout->interleave, 2);
}

TEST(AskedCuts, ChunksThatDoNotFitAreRefusedWithTheNearestThatDo) {
  // The devices have room for four layers and the activations of about five micro-batches of each.
  PlanProblem problem = Asking(ProblemOf({1, 1}, 8, 4), {0, 1, 2, 7, 8}, 2);
  for (ProblemLayer& layer : problem.layers) layer.activation_bytes = {1000, 1000, 1000};
  std::vector<std::string> why;
  const Layout even = Pipeline({0, 4, 8}, 4, 1);
  PlanProblem free = problem;
  free.choices.cut.clear();
  const auto fits = WithSchedule(free, even, {{}, 2, false}, why);
  ASSERT_TRUE(fits) << fits.error().message;
  double most = 0;
  for (const double bytes : MemoryOf(free, *fits)) most = std::max(most, bytes);
  for (ProblemDevice& device : problem.devices) device.memory_bytes = most / kMemoryShare * 1.01;
  const auto refused = WithSchedule(problem, even, {{}, 2, false}, why);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(refused.error().message, HasSubstr("or with parallel.layout = \"E"));
}

TEST(AskedCuts, AnOpenScheduleDoesNotCutThemAnew) {
  const PlanProblem problem = Asking(ProblemOf({1, 1}, 8, 4), {0, 4, 8}, 2);
  std::vector<std::string> why;
  Layout found = Pipeline({0, 4, 8}, 4, 1);
  found.recompute = Recompute::kFull;  // no list schedule
  EXPECT_TRUE(WithFastestSchedule(problem, found, why).IsPlain());
}

}  // namespace
}  // namespace adaptive_train::asked_cuts_test
