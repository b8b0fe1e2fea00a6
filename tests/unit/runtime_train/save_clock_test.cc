// Saves by the clock.
#include "runtime/train/save_clock.h"

#include <gtest/gtest.h>

namespace adaptive_train::save_clock_test {
namespace {

using std::chrono::minutes;

TEST(SaveClock, AsksOnceAPeriodUnlessSavedMeanwhile) {
  const SaveClock::Clock::time_point start{};
  SaveClock clock(10, start);
  EXPECT_FALSE(clock.Due(start + minutes(9)));
  EXPECT_TRUE(clock.Due(start + minutes(10)));
  EXPECT_FALSE(clock.Due(start + minutes(11)));
  clock.Saved(start + minutes(15));
  clock.Saved(start + minutes(12));  // an older state, written later
  EXPECT_FALSE(clock.Due(start + minutes(24)));
  EXPECT_TRUE(clock.Due(start + minutes(25)));
}

TEST(SaveClock, NeverIfNotAskedTo) {
  const SaveClock::Clock::time_point start{};
  SaveClock clock(0, start);
  EXPECT_FALSE(clock.Due(start + minutes(1'000'000)));
}

}  // namespace
}  // namespace adaptive_train::save_clock_test
