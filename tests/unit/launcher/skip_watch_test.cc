// Skipped steps: how many in a row end a run, and what a run of nothing else comes to.
#include "launcher/run/skip_watch.h"

#include <gtest/gtest.h>

namespace adaptive_train::skip_watch_test {
namespace {

TEST(SkipWatch, ManyInARowEndTheRun) {
  SkipWatch watch(3);
  EXPECT_TRUE(watch.See(1, true));
  EXPECT_TRUE(watch.See(2, true));
  EXPECT_TRUE(watch.See(3, false));
  EXPECT_TRUE(watch.See(4, true));
  EXPECT_TRUE(watch.See(5, true));
  const auto third = watch.See(6, true);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().exit_code, ExitCode::kRankFailure);
  EXPECT_NE(third.error().message.find("3 steps in a row"), std::string::npos);
  EXPECT_TRUE(watch.AtEnd());
}

TEST(SkipWatch, ARunOfSkippedStepsIsNotDone) {
  SkipWatch watch(0);
  EXPECT_TRUE(watch.AtEnd());
  for (int step = 1; step <= 20; ++step) EXPECT_TRUE(watch.See(step, true));
  EXPECT_FALSE(watch.AtEnd());
  EXPECT_TRUE(watch.See(21, false));
  EXPECT_TRUE(watch.AtEnd());
}

}  // namespace
}  // namespace adaptive_train::skip_watch_test
