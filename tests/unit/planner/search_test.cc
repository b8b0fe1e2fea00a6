// Plans that are known to be optimal, requests that cannot be met, and edge cases.
#include "launcher/planner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "tests/oracle/random_problem.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::search_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string WhyNot(const PlanProblem& problem) {
  const auto found = FindLayout(problem);
  if (found) return "found one";
  EXPECT_THAT(found.error().message, StartsWith("no feasible plan: "));
  EXPECT_EQ(found.error().exit_code, ExitCode::kNoPlan);
  EXPECT_EQ(found.error().message.find('\n'), std::string::npos);
  return found.error().message;
}

TEST(FindLayout, OneDevice) {
  const PlanProblem problem = ProblemOf({2}, 4, 6);
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(CheckLayout(problem, found->layout));
  EXPECT_DOUBLE_EQ(found->cost.step, 6 * 4 * 3 / 2.0);
  EXPECT_NEAR(found->bound, found->cost.step, 1e-6 * found->cost.step);
}

TEST(FindLayout, SharesFollowSpeeds) {
  const auto found = FindLayout(ProblemOf({3, 1}, 1, 8));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->layout.data, 2);
  const int fast = found->layout.devices[0] == 0 ? 0 : 1;
  EXPECT_EQ(found->layout.shares[static_cast<std::size_t>(fast)].samples, 6);
}

TEST(FindLayout, LeavesOutADeviceThatOnlyHoldsBack) {
  PlanProblem problem = ProblemOf({1, 1, 0.01}, 1, 8);
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layout.devices.size(), 2U);
  for (const int device : found->layout.devices) EXPECT_NE(device, 2);
}

TEST(FindLayout, PutsStagesOnTheFastLinks) {
  // The model fits no device whole, activations are large; fast links are 0-2 and 1-3.
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, 2, 8);
  for (ProblemDevice& device : problem.devices) device.memory_bytes = 200'000;
  for (ProblemLayer& layer : problem.layers) {
    layer.parameter_bytes = 100'000;
    layer.gradient_bytes = 1;
  }
  problem.layers[0].boundary_bytes = 1000;
  problem.links = LinkTable(4, {0, 50});
  problem.links.At(0, 2) = problem.links.At(2, 0) = {0, 1e9};
  problem.links.At(1, 3) = problem.links.At(3, 1) = {0, 1e9};
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  const Layout& layout = found->layout;
  ASSERT_EQ(layout.Stages(), 2);
  ASSERT_EQ(layout.data, 2);
  for (int d = 0; d < 2; ++d)
    EXPECT_EQ(std::abs(layout.devices[layout.DeviceIndex(0, d, 0)] -
                       layout.devices[layout.DeviceIndex(1, d, 0)]),
              2);
}

TEST(FindLayout, IsTheSameEachTime) {
  const PlanProblem problem = oracle::SmallProblem(7);
  const auto one = FindLayout(problem), two = FindLayout(problem);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->layout.devices, two->layout.devices);
  EXPECT_EQ(one->layout.cut, two->layout.cut);
  EXPECT_EQ(one->cost.step, two->cost.step);
}

TEST(FindLayout, IsNeverWorseThanSimplerPlanners) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const PlanProblem problem = oracle::SmallProblem(seed);
    const auto found = FindLayout(problem);
    for (const Comparison& other :
         {EvenStatic(problem), DataParallelOnly(problem), GreedyColocation(problem)}) {
      EXPECT_FALSE(other.what.empty());
      if (!other.layout) continue;
      ASSERT_TRUE(found) << "seed " << seed << ": " << other.name << " has a plan";
      const auto sound = CheckLayout(problem, *other.layout);
      EXPECT_TRUE(sound) << "seed " << seed << " " << other.name << ": " << sound.error().message;
      EXPECT_LE(found->cost.step, other.cost->step) << "seed " << seed << " " << other.name;
    }
  }
}

TEST(FindLayout, AlternativesAreOtherShapesOnce) {
  const auto found = FindLayout(ProblemOf({2, 1, 1}, 6, 12));
  ASSERT_TRUE(found);
  ASSERT_FALSE(found->alternatives.empty());
  for (std::size_t i = 0; i < found->alternatives.size(); ++i) {
    EXPECT_GE(*found->alternatives[i].step_seconds, found->cost.step * (1 - 1e-12));
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(found->alternatives[i].name, found->alternatives[j].name);
  }
}

TEST(FindLayout, RefusesAnUnsoundProblem) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 4);
  problem.kinds[0].layers[0].forward.per_sample = 0;
  const auto found = FindLayout(problem);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().exit_code, ExitCode::kUsage);
}

TEST(NoPlan, NamesTheMemoryThatLacksAndWhatWouldHelp) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 4);
  for (ProblemLayer& layer : problem.layers) layer.activation_bytes = {1e6, 1e6, 10};
  for (ProblemDevice& device : problem.devices) device.memory_bytes = 5e5;
  const std::string why = WhyNot(problem);
  EXPECT_THAT(why, HasSubstr("memory: "));
  EXPECT_THAT(why, HasSubstr("0.4 MiB may be used"));
  EXPECT_THAT(why, HasSubstr("train.recompute = full"));
}

TEST(NoPlan, NamesTheDevicesThatTensorRanksLack) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1, 1, 1, 1}, 2, 8);
  for (ProblemDevice& device : problem.devices) device.node = 0;
  problem.choices.tensor = {4};
  problem.choices.data = {2};
  EXPECT_THAT(WhyNot(problem), HasSubstr("parallel.tensor = 3 or less"));
  problem.choices.tensor = {8};
  problem.choices.data = {};
  EXPECT_THAT(WhyNot(problem), HasSubstr("parallel.tensor = 7 or less"));
}

TEST(NoPlan, NamesTheReplicasOrStagesThatWouldFit) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1, 1}, 4, 12);
  problem.choices.data = {3};
  problem.choices.pipeline = {2};
  EXPECT_THAT(
      WhyNot(problem),
      HasSubstr("parallel.data x parallel.tensor x parallel.pipeline = 3 x 1 x 2 needs 6 "
                "devices, there are 5: parallel.data = 2, or parallel.pipeline = 1 or less"));
  problem.choices.data = {};
  problem.choices.pipeline = {4};
  problem.choices.tensor = {2};
  problem.choices.data = {2};
  EXPECT_THAT(WhyNot(problem),
              HasSubstr("= 2 x 2 x 4 needs 16 devices, there are 5: 5 devices or less"));
}

TEST(NoPlan, NamesTheBatchThatWouldDivide) {
  PlanProblem problem = ProblemOf({1, 1}, 4, 14);
  problem.choices.pipeline = {2};
  problem.choices.micro_batch = {4};
  EXPECT_THAT(WhyNot(problem), HasSubstr("global_batch 12 or 16"));
  problem = ProblemOf({1, 1, 1}, 4, 2);
  problem.choices.data = {3};
  EXPECT_THAT(WhyNot(problem), HasSubstr("global_batch 3 or more"));
}

TEST(NoPlan, NamesStagesWithoutLayers) {
  PlanProblem problem = ProblemOf({1, 1, 1}, 2, 4);
  problem.choices.pipeline = {3};
  EXPECT_THAT(WhyNot(problem), HasSubstr("the model has 2"));
  EXPECT_THAT(WhyNot(problem), HasSubstr("parallel.pipeline = 2 or less"));
}

TEST(NoPlan, NamesTheLinkThatIsMissing) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 4);
  problem.links.At(0, 1).bytes_per_second = problem.links.At(1, 0).bytes_per_second = 0;
  const auto alone = FindLayout(problem);
  ASSERT_TRUE(alone);  // one device needs no link
  EXPECT_EQ(alone->layout.devices.size(), 1U);
  problem.choices.data = {2};
  EXPECT_THAT(WhyNot(problem), HasSubstr("n1 cannot reach n2"));
}

TEST(FindLayout, DisconnectedHalvesAreNotMixed) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1, 1}, 3, 12);
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b)
      if ((a < 2) != (b < 2)) problem.links.At(a, b).bytes_per_second = 0;
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  for (const int device : found->layout.devices) EXPECT_GE(device, 2);
  EXPECT_EQ(found->layout.devices.size(), 3U);
}

TEST(FindLayout, KeepsToTheMostRanks) {
  PlanProblem problem = ProblemOf({1, 2, 1, 2, 1, 2, 1, 2}, 4, 16);
  for (const std::size_t most : {1, 3, 4, 7}) {
    problem.choices.most_ranks = most;
    const auto found = FindLayout(problem);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_LE(found->layout.devices.size(), most);
    for (const Comparison& other :
         {EvenStatic(problem), DataParallelOnly(problem), GreedyColocation(problem)}) {
      ASSERT_TRUE(other.layout) << other.what;
      EXPECT_LE(other.layout->devices.size(), most) << other.name;
    }
  }
  // The fastest of them are taken.
  problem.choices.most_ranks = 4;
  problem.choices.pipeline = {1};
  auto devices = FindLayout(problem)->layout.devices;
  std::sort(devices.begin(), devices.end());
  EXPECT_EQ(devices, (std::vector<int>{1, 3, 5, 7}));
}

TEST(FindLayout, TenThousandLayers) {
  PlanProblem problem = ProblemOf({4, 3, 2}, 10000, 6);
  for (ProblemDevice& device : problem.devices) device.memory_bytes = 1.2e6;
  const auto found = FindLayout(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(CheckLayout(problem, found->layout));
  EXPECT_EQ(found->layout.Stages(), 3);
  EXPECT_LE(found->bound, found->cost.step);
}

}  // namespace
}  // namespace adaptive_train::search_test
