// What passes add to an order of forwards and backwards.
#include "core/schedule/passes.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/compute_order.h"

namespace adaptive_train::schedule_passes_test {
namespace {

Schedule OneForwardOneBackwardOf(int ranks, int micro_batches) {
  return ComputeOrder(ScheduleKind::kOneForwardOneBackward, {ranks, 1, micro_batches}).value();
}

TEST(SchedulePasses, SendsFollowWhatMakesThemAndReceivesArePostedOneActionAhead) {
  EXPECT_EQ(ToCsv(AddSendsAndReceives(OneForwardOneBackwardOf(2, 2))),
            "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(SchedulePasses, NothingIsSentWithinARank) {
  const Schedule order = ComputeOrder(ScheduleKind::kInterleaved, {1, 3, 2}).value();
  EXPECT_EQ(AddSendsAndReceives(order), order);
}

TEST(SchedulePasses, HalvesOfABackwardSendAfterTheFirst) {
  const Schedule order = ScheduleFromCsv("0F0,0I0,0W0\n1F0,1I0,1W0\n").value();
  EXPECT_EQ(ToCsv(AddSendsAndReceives(order)),
            "0RECV_B0,0F0,0SEND_F0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n");
}

TEST(SchedulePasses, ReceivesFollowTheSendersOrder) {
  // Rank 1 reads chunk 1's input before the second one of chunk 0, which rank 0 sends first.
  const Schedule order =
      ScheduleFromCsv("0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,3F0,3B0,1F1,3F1,3B1,1B0,1B1\n").value();
  EXPECT_EQ(ToCsv(AddSendsAndReceives(order)),
            "0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_B0,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,"
            "2RECV_B1,2B0,2SEND_B0,0RECV_B0,2B1,2SEND_B1,0RECV_B1,0B0,0B1\n"
            "1RECV_F0,1RECV_F1,3RECV_F0,1F0,1SEND_F0,3F0,3B0,3SEND_B0,3RECV_F1,1F1,1SEND_F1,"
            "3F1,1RECV_B0,3B1,3SEND_B1,1RECV_B1,1B0,1SEND_B0,1B1,1SEND_B1\n");
}

TEST(SchedulePasses, WeightsAreGatheredOneActionAhead) {
  EXPECT_EQ(ToCsv(AddGathers(ComputeOrder(ScheduleKind::kBreadthFirst, {1, 2, 2}).value())),
            "0GATHER0,0F0,1GATHER0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n");
}

TEST(SchedulePasses, AChunkIsReducedOnceAfterItsLastBackward) {
  EXPECT_EQ(ToCsv(AddReduces(ComputeOrder(ScheduleKind::kBreadthFirst, {1, 2, 2}).value())),
            "0F0,0F1,1F0,1F1,1B0,1B1,1REDUCE1,0B0,0B1,0REDUCE1\n");
  EXPECT_EQ(ToCsv(AddReduces(ScheduleFromCsv("0F0,0F1,0I0,0I1,0W0,0W1\n").value())),
            "0F0,0F1,0I0,0I1,0W0,0W1,0REDUCE1\n");
}

TEST(SchedulePasses, UpdatesComeAtTheEnd) {
  EXPECT_EQ(ToCsv(AddSteps(ComputeOrder(ScheduleKind::kBreadthFirst, {1, 2, 2}).value())),
            "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1,1STEP1,0STEP1\n");
}

TEST(SchedulePasses, WithoutAFlushAnUpdateComesBeforeTheNextStepsBackward) {
  const Schedule order = ComputeOrder(ScheduleKind::kPipeDream2Bw, {2, 1, 2, 2}).value();
  EXPECT_EQ(ToCsv(AddSteps(AddReduces(order, 2), 2)),
            "0F0,0F1,0B0,0F2,0B1,0REDUCE1,0F3,0STEP1,0B2,0B3,0REDUCE3,0STEP3\n"
            "1F0,1B0,1F1,1B1,1REDUCE1,1F2,1STEP1,1B2,1F3,1B3,1REDUCE3,1STEP3\n");
}

TEST(SchedulePasses, ARowOfStepsIsCutBehindEachReduce) {
  const Schedule order = ComputeOrder(ScheduleKind::kPipeDream2Bw, {2, 1, 2, 3}).value();
  const Schedule whole = WithPasses(order, {.reduce = true, .steps = 3});
  const auto rows = RowsOfSteps(whole.ranks[0], 2);
  ASSERT_EQ(rows.size(), 3u);
  const auto text = [](const std::vector<Action>& row) {
    return ToCsv({.stages = 2, .micro_batches = 2, .ranks = {row}});
  };
  EXPECT_EQ(text(rows[0]),
            "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0F2,0SEND_F2,0B1,0RECV_B2,0REDUCE1\n");
  EXPECT_EQ(text(rows[1]), "0F1,0SEND_F1,0B0,0RECV_B1,0F2,0SEND_F2,0B1,0RECV_B2,0REDUCE1\n");
  EXPECT_EQ(text(rows[2]), "0F1,0SEND_F1,0RECV_B1,0B0,0B1,0REDUCE1\n");
}

// What a run does: the last step as any later one, without what is not its own.
TEST(SchedulePasses, ALastStepComputesAsALaterOneWithoutTheNextStepsForwards) {
  for (const int ranks : {2, 3, 5}) {
    for (const int micro_batches : {5, 6, 9}) {
      const ScheduleShape shape{ranks, 1, micro_batches, 3};
      const Schedule whole = WithPasses(ComputeOrder(ScheduleKind::kPipeDream2Bw, shape).value(),
                                        {.reduce = true, .steps = 3});
      for (const std::vector<Action>& row : whole.ranks) {
        auto rows = RowsOfSteps(row, micro_batches);
        for (auto& of_step : rows) {
          std::erase_if(of_step, [&](const Action& action) {
            return IsReceive(action.kind) || action.micro_batch >= micro_batches;
          });
        }
        EXPECT_TRUE(rows[1] == rows[2]) << ranks << ", " << micro_batches;
      }
    }
  }
}

TEST(SchedulePasses, TogetherTheyMakeAStep) {
  EXPECT_EQ(ToCsv(WithPasses(OneForwardOneBackwardOf(2, 1), {.gather = true, .reduce = true})),
            "0RECV_B0,0GATHER0,0F0,0SEND_F0,0B0,0REDUCE0,0STEP0\n"
            "1RECV_F0,1GATHER0,1F0,1B0,1SEND_B0,1REDUCE0,1STEP0\n");
}

}  // namespace
}  // namespace adaptive_train::schedule_passes_test
