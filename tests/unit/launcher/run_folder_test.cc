// Run folders: one launcher at a time, metrics that can be cut back, owners.
#include "launcher/run/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/file_io.h"

namespace adaptive_train::run_folder_test {
namespace {

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "run_folder_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern + "/a/b";
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string path_, root_;
};

TEST_F(RunFolderTest, IsHeldByOneAtATime) {
  {
    auto folder = RunFolder::Open(path_);
    ASSERT_TRUE(folder) << folder.error().message;
    EXPECT_TRUE(std::filesystem::is_directory(path_ + "/logs"));
    auto second = RunFolder::Open(path_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().exit_code, ExitCode::kPreflight);
  }
  EXPECT_TRUE(RunFolder::Open(path_));
}

TEST_F(RunFolderTest, CutsMetricsBackToAStep) {
  auto folder = RunFolder::Open(path_);
  for (int step = 1; step <= 5; ++step)
    ASSERT_TRUE(folder->AppendMetrics("{\"step\":" + std::to_string(step) + "}"));
  std::ofstream(path_ + "/metrics.jsonl", std::ios::app)
      << "{\"step\":6,\"lo";  // a launcher was killed here
  ASSERT_TRUE(folder->CutMetrics(3));
  EXPECT_EQ(*ReadFile(path_ + "/metrics.jsonl", 1000),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  ASSERT_TRUE(folder->CutMetrics(0));
  EXPECT_EQ(*ReadFile(path_ + "/metrics.jsonl", 1000), "");
}

TEST_F(RunFolderTest, KnowsWhoseItIs) {
  const RunOwner job{"box", 7, 0, 1000.0};
  EXPECT_TRUE(RunFolder::MayBelongTo(path_, job));
  ASSERT_TRUE(RunFolder::Open(path_)->SetOwner(job));
  EXPECT_TRUE(RunFolder::MayBelongTo(path_, job));
  EXPECT_FALSE(RunFolder::MayBelongTo(path_, {"box", 7, 0, 2000.0}));
  EXPECT_TRUE(RunFolder::MayBelongTo(path_, {"box", 7, 1, 2000.0}));
  EXPECT_FALSE(RunFolder::MayBelongTo(path_, {"other", 7, 1, 1000.0}));
}

TEST_F(RunFolderTest, RemovedWhileItsRunGoesOnIsToldByName) {
  auto folder = RunFolder::Open(path_);
  ASSERT_TRUE(folder);
  std::filesystem::remove_all(path_);
  const auto appended = folder->AppendMetrics("{}");
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().message,
            "run folder: " + path_ + " was removed while its run went on");
}

TEST_F(RunFolderTest, AStartThatCameToNothingLeavesNoFolderOfItsOwn) {
  const auto start = [&] {
    auto folder = RunFolder::Open(path_);
    EXPECT_TRUE(folder->SetOwner({}));
    EXPECT_TRUE(folder->Write("config.resolved.toml", "\n"));
    return folder;
  };
  start()->RemoveIfUnused();
  EXPECT_FALSE(std::filesystem::exists(path_));
  auto used = start();
  ASSERT_TRUE(used->Write("plan.json", "{}"));
  used->RemoveIfUnused();
  EXPECT_TRUE(std::filesystem::exists(path_ + "/job.json"));
}

TEST_F(RunFolderTest, AFolderThatWasThereBeforeStays) {
  std::filesystem::create_directories(path_);
  RunFolder::Open(path_)->RemoveIfUnused();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace adaptive_train::run_folder_test
