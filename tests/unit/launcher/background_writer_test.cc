// Writes on a thread of their own: order, failures, stalls.
#include "launcher/run/background_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace adaptive_train::background_writer_test {
namespace {

TEST(BackgroundWriter, DoesItsTasksInOrder) {
  std::vector<int> done;
  BackgroundWriter writer;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(writer.Post([&done, i]() -> Result<void> {
      done.push_back(i);
      return {};
    }));
  }
  ASSERT_TRUE(writer.Finish(std::chrono::seconds(10)));
  ASSERT_EQ(done.size(), 100u);
  EXPECT_EQ(done[99], 99);
}

TEST(BackgroundWriter, TellsTheFirstFailureAndStops) {
  BackgroundWriter writer;
  int later = 0;
  ASSERT_TRUE(
      writer.Post([]() -> Result<void> { return Fail("disk full", ExitCode::kRankFailure); }));
  auto finished = writer.Finish(std::chrono::seconds(10));
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().message, "disk full");
  EXPECT_FALSE(writer.Post([&later]() -> Result<void> {
    ++later;
    return {};
  }));
  EXPECT_EQ(later, 0);
}

TEST(BackgroundWriter, AStalledTaskHoldsNobodyButFinish) {
  std::mutex stall;
  stall.lock();
  BackgroundWriter writer;
  ASSERT_TRUE(writer.Post([&stall]() -> Result<void> {
    std::lock_guard lock(stall);
    return {};
  }));
  ASSERT_TRUE(writer.Post([]() -> Result<void> { return {}; }));
  auto finished = writer.Finish(std::chrono::milliseconds(100));
  ASSERT_FALSE(finished);
  EXPECT_THAT(finished.error().message, testing::HasSubstr("did not end within"));
  stall.unlock();
  EXPECT_TRUE(writer.Finish(std::chrono::seconds(10)));
}

}  // namespace
}  // namespace adaptive_train::background_writer_test
