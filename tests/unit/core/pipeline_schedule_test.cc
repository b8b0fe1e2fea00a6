// The order of forwards and backwards.
#include "core/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace adaptive_train {
namespace {

TEST(ScheduleTest, OneStageAlternates) {
  const std::vector<ScheduledAction> expected{{false, 0}, {true, 0}, {false, 1}, {true, 1}};
  EXPECT_EQ(OneForwardOneBackward(1, 0, 2), expected);
}

TEST(ScheduleTest, EachStageHoldsNoMoreThanStagesToTheEnd) {
  for (const int stages : {1, 2, 3, 8}) {
    for (const int micro_batches : {1, 2, 5, 16}) {
      for (int stage = 0; stage < stages; ++stage) {
        const std::vector<ScheduledAction> schedule =
            OneForwardOneBackward(stages, stage, micro_batches);
        int held = 0, most = 0, forward = 0, backward = 0;
        for (const ScheduledAction& action : schedule) {
          EXPECT_EQ(action.micro_batch, action.backward ? backward++ : forward++);
          most = std::max(most, held += action.backward ? -1 : 1);
        }
        EXPECT_EQ(forward, micro_batches);
        EXPECT_EQ(backward, micro_batches);
        EXPECT_EQ(most, std::min(micro_batches, stages - stage));
        EXPECT_EQ(most, MostInFlight(schedule, 0));
      }
    }
  }
}

TEST(ScheduleTest, EachChunkCountsItsOwnMicroBatchesInFlight) {
  // Backward, micro-batch, chunk.
  const std::vector<ScheduledAction> schedule{
      {false, 0, 0}, {false, 1, 0}, {false, 2, 0}, {false, 0, 1}, {true, 0, 1}, {false, 1, 1},
      {false, 2, 1}, {true, 1, 1},  {true, 0, 0},  {true, 2, 1},  {true, 1, 0}, {true, 2, 0}};
  EXPECT_EQ(MostInFlight(schedule, 0), 3);
  EXPECT_EQ(MostInFlight(schedule, 1), 2);
  EXPECT_EQ(MostInFlight(schedule, 2), 0);
  EXPECT_EQ(MostInFlight({}, 0), 0);
}

}  // namespace
}  // namespace adaptive_train
