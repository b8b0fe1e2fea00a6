// Deadlines of a launch by the number of ranks, and the ports it may use.
#include "core/launch_settings.h"

#include <gtest/gtest.h>

namespace adaptive_train::launch_settings_test {
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
  const auto quick = HelloDeadlinesAgain({}, deadlines, {400ms, 100ms});
  EXPECT_EQ(quick.first, deadlines.rank_silence);
  EXPECT_EQ(quick.spread, deadlines.rank_silence);
  const auto slow = HelloDeadlinesAgain({}, deadlines, {2s, 500ms});
  EXPECT_EQ(slow.first, 10s);
  EXPECT_EQ(slow.spread, 5s);
  const auto slowest = HelloDeadlinesAgain({}, deadlines, {30s, 30s});
  EXPECT_EQ(slowest.first, deadlines.hello);
  EXPECT_EQ(slowest.spread, deadlines.spread);
  LaunchConfig launch;
  launch.hello_seconds = 300;
  const auto set = HelloDeadlinesAgain(launch, DeadlinesOf(launch, 4), {400ms, 100ms});
  EXPECT_EQ(set.first, 300s);
  EXPECT_EQ(set.spread, 300s);
}

TEST(LaunchSettings, ReadsPorts) {
  EXPECT_EQ(ParsePorts("auto")->first, 0);
  EXPECT_EQ(ParsePorts("4000-4010")->first, 4000);
  EXPECT_EQ(ParsePorts("4000-4010")->last, 4010);
  for (const char* text : {"", "4000", "4010-4000", "0-10", "1-65536", "a-b", "1-2-3", " 1-2"})
    EXPECT_FALSE(ParsePorts(text)) << text;
}

}  // namespace
}  // namespace adaptive_train::launch_settings_test
