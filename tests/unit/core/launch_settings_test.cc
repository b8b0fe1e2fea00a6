// Deadlines of a launch by the number of ranks, and the ports it may use.
#include "core/launch_settings.h"

#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

TEST(LaunchSettings, DeadlinesGrowWithTheRanks) {
  const auto few = DeadlinesOf({}, 4), many = DeadlinesOf({}, 4096);
  EXPECT_GE(few.hello, kHelloDeadline);
  EXPECT_LT(few.fence, kFenceDeadline + 1s);
  EXPECT_GT(many.hello, few.hello + 60s);
  EXPECT_GT(many.spread, few.spread + 30s);
  EXPECT_GT(many.pmix_init, few.pmix_init + 30s);
  EXPECT_GT(many.fence, few.fence + 15s);
  EXPECT_GT(many.Wiring(), 2 * many.fence);
  EXPECT_GT(many.short_step, few.short_step + 60s);
}

TEST(LaunchSettings, WhatIsSetIsTaken) {
  LaunchConfig launch;
  launch.hello_seconds = 300;
  launch.fence_seconds = 7;
  launch.short_step_seconds = 9;
  launch.silence_seconds = 30;
  const auto deadlines = DeadlinesOf(launch, 4096);
  EXPECT_EQ(deadlines.hello, 300s);
  EXPECT_EQ(deadlines.spread, 300s);
  EXPECT_EQ(deadlines.pmix_init, 300s);
  EXPECT_EQ(deadlines.fence, 7s);
  EXPECT_EQ(deadlines.short_step, 9s);
  EXPECT_EQ(deadlines.rank_silence, 30s);
  EXPECT_GT(deadlines.launcher_silence, 60s);
}

TEST(LaunchSettings, AFailureIsSeenWithinThreeSeconds) {
  const auto deadlines = DeadlinesOf({}, 4096);
  EXPECT_LE(deadlines.rank_silence + kHeartbeatPeriod, 3s);
  EXPECT_GT(deadlines.rank_silence, 4 * kHeartbeatPeriod);
  EXPECT_EQ(deadlines.launcher_silence, kLauncherSilenceLimit);
}

TEST(LaunchSettings, RanksThatWereLaunchedBeforeHaveLessTimeToCome) {
  const auto deadlines = DeadlinesOf({}, 4);
  EXPECT_EQ(SpreadAgain({}, deadlines, 100ms), deadlines.rank_silence);
  EXPECT_EQ(SpreadAgain({}, deadlines, 500ms), 5s);
  EXPECT_EQ(SpreadAgain({}, deadlines, 30s), deadlines.spread);
  LaunchConfig launch;
  launch.hello_seconds = 300;
  EXPECT_EQ(SpreadAgain(launch, DeadlinesOf(launch, 4), 100ms), 300s);
}

TEST(LaunchSettings, ReadsPorts) {
  EXPECT_EQ(ParsePorts("auto")->first, 0);
  EXPECT_EQ(ParsePorts("4000-4010")->first, 4000);
  EXPECT_EQ(ParsePorts("4000-4010")->last, 4010);
  for (const char* text : {"", "4000", "4010-4000", "0-10", "1-65536", "a-b", "1-2-3", " 1-2"})
    EXPECT_FALSE(ParsePorts(text)) << text;
}

}  // namespace
}  // namespace adaptive_train
