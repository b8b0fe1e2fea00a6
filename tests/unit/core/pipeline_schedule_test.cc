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
        int held = 0, most = 0, forward = 0, backward = 0;
        for (const ScheduledAction& action : OneForwardOneBackward(stages, stage, micro_batches)) {
          EXPECT_EQ(action.micro_batch, action.backward ? backward++ : forward++);
          most = std::max(most, held += action.backward ? -1 : 1);
        }
        EXPECT_EQ(forward, micro_batches);
        EXPECT_EQ(backward, micro_batches);
        EXPECT_EQ(most, std::min(micro_batches, stages - stage));
      }
    }
  }
}

}  // namespace
}  // namespace adaptive_train
