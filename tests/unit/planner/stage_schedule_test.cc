// A layout gets the schedule that is asked for, in the time that the schedule's paper gives.
#include "launcher/planner/stage_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/planner/layout.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::stage_schedule_test {
namespace {

using testing::HasSubstr;

ScheduleRequest Of(ScheduleKind kind) { return {kind, {}, false}; }
ScheduleRequest Chunks(int chunks) { return {{}, chunks, false}; }

/// Two stages of four layers, which take 4 s forward and 8 s backward, and four micro-batches.
class StageScheduleTest : public testing::Test {
 protected:
  double StepWith(const ScheduleRequest& request) {
    std::vector<std::string> why;
    const auto layout = WithSchedule(problem_, found_, request, why);
    if (!layout) {
      ADD_FAILURE() << layout.error().message;
      return 0;
    }
    EXPECT_EQ(layout->Stages(), 2);
    EXPECT_TRUE(CheckLayout(problem_, *layout));
    return CostOf(problem_, *layout).step;
  }

  PlanProblem problem_ = ProblemOf({1, 1}, 8, 4);
  Layout found_ = Pipeline({0, 4, 8}, 4, 1);
};

TEST_F(StageScheduleTest, StepsTakeWhatTheSchedulesPromise) {
  constexpr double kTransfers = 1e-6;
  EXPECT_NEAR(StepWith({}), 60, kTransfers);
  EXPECT_NEAR(StepWith(Of(ScheduleKind::kGPipe)), 60, kTransfers);
  EXPECT_NEAR(StepWith(Chunks(2)), 54, kTransfers);
  EXPECT_NEAR(StepWith(Chunks(4)), 51, kTransfers);
  EXPECT_NEAR(StepWith(Of(ScheduleKind::kInterleaved)), 54, kTransfers);
  EXPECT_NEAR(StepWith(Of(ScheduleKind::kBreadthFirst)), 54, kTransfers);
  EXPECT_NEAR(StepWith(Of(ScheduleKind::kZeroBubbleH1)), 52, kTransfers);
  EXPECT_NEAR(StepWith({{}, {}, true}), 52, kTransfers);
  EXPECT_NEAR(StepWith(Of(ScheduleKind::kPipeDream2Bw)), 48, kTransfers) << "no bubble";
}

TEST_F(StageScheduleTest, PartsOfAStepWithoutAFlushAreNotNegative) {
  Layout layout = found_;
  layout.schedule = ScheduleKind::kPipeDream2Bw;
  for (double seconds = 0.001; seconds < 1; seconds *= 1.3) {
    for (DeviceKind& kind : problem_.kinds)
      for (LayerSeconds& layer : kind.layers) layer.forward.per_sample = seconds;
    const StepCost cost = CostOf(problem_, layout);
    EXPECT_GE(cost.bubble, 0) << seconds;
    EXPECT_GE(cost.activations, 0) << seconds;
    EXPECT_NEAR(cost.bubble, 0, 1e-9) << seconds;
  }
}

TEST_F(StageScheduleTest, ChunksKeepTheSharesOfUnevenStages) {
  problem_ = ProblemOf({2, 1}, 12, 8);
  found_ = Pipeline({0, 8, 12}, 8, 1);
  std::vector<std::string> why;
  const auto layout = WithSchedule(problem_, found_, Chunks(2), why);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->LayersOf(0).size(), 8u);
  EXPECT_EQ(layout->LayersOf(1).size(), 4u);
  EXPECT_EQ(layout->Chunks(), 4);
  EXPECT_LT(CostOf(problem_, *layout).step, CostOf(problem_, found_).step);
}

TEST_F(StageScheduleTest, RefusesWhatDoesNotFit) {
  for (ProblemLayer& layer : problem_.layers) layer.activation_bytes = {1000, 1000, 1000};
  for (ProblemDevice& device : problem_.devices) device.memory_bytes = 15'000;
  std::vector<std::string> why;
  ASSERT_TRUE(CheckLayout(problem_, found_));
  const auto held = WithSchedule(problem_, found_, Of(ScheduleKind::kGPipe), why);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(held.error().message, HasSubstr("gpipe schedule"));
  EXPECT_THAT(held.error().message, HasSubstr("smaller train.micro_batch"));
  const auto chunks = WithSchedule(problem_, found_, Chunks(5), why);
  ASSERT_FALSE(chunks);
  EXPECT_THAT(chunks.error().message, HasSubstr("need 10 layers; the model has 8"));
}

TEST_F(StageScheduleTest, OneStageNeedsNoSchedule) {
  problem_ = ProblemOf({1}, 8, 4);
  found_ = Replicas({{4, 1}}, 8);
  std::vector<std::string> why;
  const auto layout = WithSchedule(problem_, found_, Of(ScheduleKind::kGPipe), why);
  ASSERT_TRUE(layout);
  EXPECT_TRUE(layout->IsPlain());
  EXPECT_THAT(why, testing::ElementsAre(HasSubstr("one stage")));
}

TEST_F(StageScheduleTest, AnOpenRequestTakesWhatIsFastest) {
  std::vector<std::string> why;
  const Layout listed = WithFastestSchedule(problem_, found_, why);
  EXPECT_FALSE(listed.listed.empty());
  EXPECT_LT(CostOf(problem_, listed).step, 0.97 * CostOf(problem_, found_).step);
  EXPECT_THAT(why, testing::Contains(HasSubstr("schedule: list, 13.3 % faster than 1f1b")));

  // Backward in halves keeps what recomputation throws away.
  found_.recompute = Recompute::kFull;
  why.clear();
  const Layout chunks = WithFastestSchedule(problem_, found_, why);
  EXPECT_EQ(chunks.interleave, 2);
  EXPECT_THAT(why, testing::Contains(HasSubstr("2 chunks of the model per rank")));
}

TEST_F(StageScheduleTest, AnOpenRequestKeepsOneForwardOneBackwardWhereLittleIsGained) {
  problem_ = ProblemOf({1, 1}, 8, 100);
  found_ = Pipeline({0, 4, 8}, 100, 1);  // a bubble of 1 in 101
  std::vector<std::string> why;
  EXPECT_TRUE(WithFastestSchedule(problem_, found_, why).IsPlain());
  EXPECT_THAT(why, testing::IsEmpty());
}

TEST_F(StageScheduleTest, AnOpenRequestTakesNothingThatDoesNotFit) {
  for (ProblemLayer& layer : problem_.layers) layer.activation_bytes = {1000, 1000, 1000};
  double most = 0;
  for (const double bytes : MemoryOf(problem_, found_)) most = std::max(most, bytes);
  for (ProblemDevice& device : problem_.devices) device.memory_bytes = most / kMemoryShare * 1.001;
  std::vector<std::string> why;
  const Layout layout = WithFastestSchedule(problem_, found_, why);
  EXPECT_TRUE(CheckLayout(problem_, layout));
}

}  // namespace
}  // namespace adaptive_train::stage_schedule_test
