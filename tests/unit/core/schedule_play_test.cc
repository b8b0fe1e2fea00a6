// Times of schedules against what can be counted by hand.
#include "core/schedule/play.h"

#include <gtest/gtest.h>

#include "core/schedule/compute_order.h"
#include "core/schedule/passes.h"
#include "tests/unit/core/schedule_shapes.h"

namespace adaptive_train::schedule_play_test {
namespace {

constexpr double kTiny = 1e-9;

TEST(SchedulePlayTest, TwoUnevenStagesByHand) {
  const Schedule schedule = ComputeOrder(ScheduleKind::kOneForwardOneBackward, {2, 1, 2}).value();
  const PlayCosts costs{.stages = {{1, 1, 1}, {2, 3, 1}}, .transfer_s = {0.5}};
  const SchedulePlay play = PlaySchedule(schedule, costs);
  // 1F0 1.5-3.5, 1B0 -7.5, 1F1 -9.5, 1B1 -13.5; its gradient is at rank 0 at 14.
  EXPECT_NEAR(play.ranks[1][0].begin, 1.5, kTiny);
  EXPECT_NEAR(play.ranks[1][3].end, 13.5, kTiny);
  EXPECT_NEAR(play.ranks[0][2].begin, 8, kTiny);
  EXPECT_NEAR(play.makespan_s, 16, kTiny);
  EXPECT_NEAR(play.busy_s[0], 6, kTiny);
  EXPECT_NEAR(play.busy_s[1], 12, kTiny);
  EXPECT_NEAR(play.Bubble(), 1 - 18.0 / 32, kTiny);
}

TEST(SchedulePlayTest, MovingTakesFromPassesWhatWaitsDoNotTake) {
  const Schedule schedule = ComputeOrder(ScheduleKind::kGPipe, {2, 1, 2}).value();
  const StageSeconds first{.forward = 2, .backward_input = 2, .moving = 1};
  const StageSeconds second{.forward = 1, .backward_input = 2, .moving = 0.5};
  const SchedulePlay play = PlaySchedule(schedule, {.stages = {first, second}, .transfer_s = {0}});
  // 0F0 0-2, 0F1 -4; 1F0 2-2.5, 1F1 4-4.5 after waits; 1B0 -6.5, 1B1 -8.5 without; 0B0 6.5-7.5 after
  // a wait of 2.5; 0B1 8.5-9.5 after one of 1.
  EXPECT_NEAR(play.makespan_s, 9.5, kTiny);
  EXPECT_NEAR(play.busy_s[0], 6, kTiny);
  EXPECT_NEAR(play.busy_s[1], 5, kTiny);
}

TEST(SchedulePlayTest, MessagesOfOneDirectionFollowEachOther) {
  const Schedule schedule = ComputeOrder(ScheduleKind::kGPipe, {2, 1, 3}).value();
  const PlayCosts costs{.stages = {{1, 0, 0}, {1, 0, 0}}, .transfer_s = {5}};
  const SchedulePlay play = PlaySchedule(schedule, costs);
  EXPECT_NEAR(play.ranks[1][0].begin, 6, kTiny);
  EXPECT_NEAR(play.ranks[1][1].begin, 11, kTiny);
  EXPECT_NEAR(play.ranks[1][2].begin, 16, kTiny);
}

TEST(SchedulePlayTest, SendsInTheScheduleChangeNoTimes) {
  for (const NamedSchedule& named : AllSchedules()) {
    PlayCosts costs;
    for (int stage = 0; stage < named.schedule.stages; ++stage) {
      costs.stages.push_back({1 + 0.1 * stage, 1.2, 0.9 + 0.05 * (stage % 3)});
      costs.stages.back().moving = 0.3;
      if (stage > 0) costs.transfer_s.push_back(0.01 * (1 + stage % 4));
    }
    const double bare = PlaySchedule(named.schedule, costs).makespan_s;
    EXPECT_NEAR(PlaySchedule(AddSendsAndReceives(named.schedule), costs).makespan_s, bare, kTiny)
        << named.name;
  }
}

TEST(SchedulePlayTest, ExchangeRunsBesideComputingAndTheUpdateWaitsForIt) {
  const Schedule schedule = WithPasses(ComputeOrder(ScheduleKind::kBreadthFirst, {1, 2, 1}).value(),
                                       {.gather = true, .reduce = true});
  EXPECT_EQ(ToCsv(schedule), "0GATHER0,1GATHER0,0F0,1F0,1B0,1REDUCE0,0B0,0REDUCE0,1STEP0,0STEP0\n");
  const StageSeconds stage{
      .forward = 1, .backward_input = 1, .backward_weight = 1, .reduce = 4, .gather = 2, .step = 1};
  const SchedulePlay play = PlaySchedule(schedule, {.stages = {stage, stage}, .transfer_s = {0}});
  // Gathers end at 2 and 4; 0F0 2-3, 1F0 4-5, 1B0 -7, its reduce -11; 0B0 -9, its reduce, after the
  // first one, -15; updates 11-12 and 15-16.
  EXPECT_NEAR(play.ranks[0][3].begin, 4, kTiny);
  EXPECT_NEAR(play.ranks[0][8].begin, 11, kTiny);
  EXPECT_NEAR(play.makespan_s, 16, kTiny);
  EXPECT_NEAR(play.busy_s[0], 8, kTiny);
}

TEST(SchedulePlayTest, StagesWithoutLayersTakeNoTime) {
  const Schedule schedule = ComputeOrder(ScheduleKind::kOneForwardOneBackward, {3, 1, 4}).value();
  const PlayCosts costs{.stages = {{1, 1, 1}, {}, {1, 1, 1}}, .transfer_s = {0, 0}};
  // As two stages, of which the first runs ahead by two.
  EXPECT_NEAR(PlaySchedule(schedule, costs).makespan_s, 3 * 5, kTiny);
  const PlayCosts none{.stages = {{}, {}, {}}, .transfer_s = {0, 0}};
  EXPECT_EQ(PlaySchedule(schedule, none).makespan_s, 0);
  EXPECT_EQ(PlaySchedule(schedule, none).Bubble(), 0);
}

}  // namespace
}  // namespace adaptive_train::schedule_play_test
