// The grid over micro-batches: what each point takes, what memory forbids, which one is chosen.
#include "launcher/planner/micro_batch_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/planner/layout.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::micro_batch_grid_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two stages of six layers together, each layer three seconds of a sample; 12 samples.
struct MicroBatchGridTest : testing::Test {
  const GridPoint& At(std::int64_t micro_batches) const {
    for (const GridPoint& point : grid)
      if (point.micro_batches == micro_batches) return point;
    throw std::runtime_error("not in the grid");
  }
  void Fill(const Layout& layout) { grid = MicroBatchGrid(problem, layout); }

  PlanProblem problem = ProblemOf({1, 1}, 6, 12);
  Layout own = Pipeline({0, 3, 6}, 12, 2);
  std::vector<GridPoint> grid;
};

TEST_F(MicroBatchGridTest, StepsAreThoseOfAnEvenPipeline) {
  problem.links = LinkTable(2, {0, 1e30});
  Fill(own);
  std::vector<std::int64_t> counts;
  for (const GridPoint& point : grid) {
    counts.push_back(point.micro_batches);
    const auto m = static_cast<double>(point.micro_batches);
    // (M + P - 1) t(B / M), where a stage of three layers takes 9 s for each sample.
    EXPECT_NEAR(point.step_seconds, (m + 2 - 1) * 9 * (12 / m), 1e-6) << m;
    EXPECT_EQ(point.micro_batch * point.micro_batches, 12);
    EXPECT_TRUE(point.is_allowed) << point.why_not;
    EXPECT_TRUE(CheckLayout(problem, point.layout));
  }
  EXPECT_THAT(counts, ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_EQ(grid[ChosenPoint(grid, own)].micro_batches, 12) << "nothing is spent on their number";
}

TEST_F(MicroBatchGridTest, WhatAMicroBatchCostsLimitsTheirNumber) {
  for (DeviceKind& kind : problem.kinds)
    for (LayerSeconds& layer : kind.layers) layer.forward.fixed = 3;
  Fill(own);
  // (M + 1) (9 + 108 / M) is least at the square root of 12.
  EXPECT_EQ(grid[ChosenPoint(grid, own)].micro_batches, 4);
  EXPECT_NEAR(At(4).step_seconds, 5 * (9 + 27), 1e-6);
  EXPECT_LT(At(4).step_seconds, At(3).step_seconds + 1e-9);
}

TEST_F(MicroBatchGridTest, MemoryForbidsLargeMicroBatches) {
  for (DeviceKind& kind : problem.kinds)
    for (LayerSeconds& layer : kind.layers) layer.forward.fixed = 100;  // few would be fastest
  for (ProblemLayer& layer : problem.layers) layer.activation_bytes = {100, 100, 100};
  for (ProblemDevice& device : problem.devices) device.memory_bytes = 3800;
  Fill(own);
  const GridPoint& chosen = grid[ChosenPoint(grid, own)];
  EXPECT_TRUE(chosen.is_allowed);
  EXPECT_LE(chosen.memory_share, kMemoryShare);
  bool forbids = false;
  for (const GridPoint& point : grid) {
    EXPECT_EQ(point.is_allowed, point.memory_share <= kMemoryShare);
    if (point.is_allowed) continue;
    forbids = true;
    EXPECT_LT(point.step_seconds, chosen.step_seconds) << "it would be faster";
    EXPECT_EQ(point.why_not, "more than 90 % of a device's memory");
  }
  EXPECT_TRUE(forbids);
}

TEST_F(MicroBatchGridTest, AScheduleWithoutAFlushHasAMicroBatchForEachStage) {
  own = Pipeline({0, 3, 6}, 12, 12);
  own.schedule = ScheduleKind::kPipeDream2Bw;
  Fill(own);
  EXPECT_EQ(At(1).why_not, "too few for the schedule");
  EXPECT_GE(grid[ChosenPoint(grid, own)].micro_batches, 2);
  problem.choices.micro_batch = {12};
  Fill(own);
  EXPECT_EQ(grid[ChosenPoint(grid, own)].micro_batch, 12) << "refused by name later";
}

TEST_F(MicroBatchGridTest, TheRequestsMicroBatchStays) {
  problem.choices.micro_batch = {2};
  Fill(own);
  EXPECT_EQ(grid[ChosenPoint(grid, own)].micro_batch, 2);
  EXPECT_EQ(At(12).why_not, "another micro-batch is asked for");
}

TEST_F(MicroBatchGridTest, SharesStayNearInWholeMicroBatches) {
  problem = ProblemOf({1, 1, 1, 1}, 6, 12);
  Layout uneven = own;
  uneven.data = 2;
  uneven.devices = {0, 1, 2, 3};
  uneven.rings = {{0, 1}, {0, 1}};
  uneven.shares = {{9, 1}, {3, 1}};
  Fill(uneven);
  for (const GridPoint& point : grid) {
    EXPECT_TRUE(CheckLayout(problem, point.layout))
        << CheckLayout(problem, point.layout).error().message;
    if (point.micro_batch == 3) {
      EXPECT_EQ(point.layout.shares[0].samples, 9);
    }
    if (point.micro_batch == 6) {
      EXPECT_EQ(point.layout.shares[0].samples, 6) << "one each";
    }
    EXPECT_LT(point.micro_batch, 12) << "two replicas need two";
  }
}

TEST_F(MicroBatchGridTest, OneStageSplitsItsShares) {
  problem = ProblemOf({1, 1}, 2, 12);
  Fill(Replicas({{7, 7}, {5, 5}}, 2));
  for (const GridPoint& point : grid) {
    EXPECT_TRUE(CheckLayout(problem, point.layout));
    EXPECT_EQ(point.layout.shares[0].samples, 7);
  }
  EXPECT_EQ(grid.front().micro_batch, 7);
  EXPECT_EQ(grid.back().micro_batch, 1);
}

TEST_F(MicroBatchGridTest, SchedulesAreMadeForTheirNumber) {
  Layout listed = own;
  listed.schedule = ScheduleKind::kZeroBubbleH1;
  Fill(listed);
  EXPECT_GE(grid.size(), 3U);
  for (const GridPoint& point : grid) EXPECT_EQ(point.layout.schedule, listed.schedule);
}

TEST_F(MicroBatchGridTest, WordsNameTheChoice) {
  problem.choices.micro_batch = {2};
  Fill(own);
  const std::string text = DescribeGrid(grid, ChosenPoint(grid, own), true);
  EXPECT_THAT(text, HasSubstr("M     6 of    2 sequences   126.0000 s  memory   0 %  chosen\n"));
  EXPECT_THAT(text, HasSubstr("another micro-batch is asked for\n"));
  EXPECT_THAT(DescribeGrid(grid, 0, false), testing::Not(HasSubstr(" s  ")));
}

}  // namespace
}  // namespace adaptive_train::micro_batch_grid_test
