// Of a run's folder, a folder of checkpoints, or a checkpoint: which checkpoint, which
// configuration.
#include "launcher/commands/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "runtime/checkpoint/checkpoint_shard.h"

namespace adaptive_train::saved_model_test {
namespace {

using testing::HasSubstr;

class SavedModels : public testing::Test {
 protected:
  SavedModels() {
    std::string pattern = testing::TempDir() + "adaptive-train-saved-XXXXXX";
    root_ = std::filesystem::canonical(mkdtemp(pattern.data())).string();
  }
  ~SavedModels() override { std::filesystem::remove_all(root_); }

  std::string At(const std::string& path) const { return root_ + "/" + path; }
  /// A whole one, of one small parameter.
  void Checkpoint(const std::string& path) const {
    const std::filesystem::path at = At(path);
    const CheckpointFolder folder(at.parent_path().string());
    CheckpointStep step;
    step.step = StepOfName(at.filename().string());
    ShardIndex index;
    index.step = step.step;
    index.arena = CheckpointArena{{{"wte.weight"}}, BucketRule::Whole(4, 1)};
    index.elements = 4;
    const std::vector<float> state(kResiduals * 4, 1.0F);
    ASSERT_TRUE(
        WriteShard(folder, 1, 0, index, std::as_bytes(std::span(state)), [] { return false; }));
    ASSERT_TRUE(CommitShards(folder, 1, step, {"", {{"wte.weight", {4}, 4}}}, 1));
  }
  void Configure(const std::string& path, const std::string& more = "") const {
    std::filesystem::create_directories(std::filesystem::path(At(path)).parent_path());
    std::ofstream(At(path))
        << "format_version = 1\n[model]\nlayers = 7\n[data]\ntrain = \"corpus.txt\"\n"
        << more;
  }

  std::string root_;
};

TEST_F(SavedModels, ARunsFolderGivesItsNewestCheckpoint) {
  Configure("run/config.resolved.toml");
  Checkpoint("run/checkpoints/step-00000009");
  Checkpoint("run/checkpoints/step-00000010");
  std::filesystem::create_directories(At("run/checkpoints/step-00000011"));  // not complete
  auto model = FindSavedModel(At("run"), "");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->checkpoint, At("run/checkpoints/step-00000010"));
  EXPECT_EQ(model->config.model.layers, 7);
}

TEST_F(SavedModels, ADamagedNewestCheckpointGivesWayToAnOlderOneThatHolds) {
  Configure("run/config.resolved.toml");
  Checkpoint("run/checkpoints/step-00000009");
  Checkpoint("run/checkpoints/step-00000010");
  const std::string shard = At("run/checkpoints/step-00000010/shard-00000.bin");
  std::fstream(shard, std::ios::in | std::ios::out).write("damage", 6);
  auto model = FindSavedModel(At("run"), "");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->checkpoint, At("run/checkpoints/step-00000009"));
  ASSERT_EQ(model->refused.size(), 1U);
  EXPECT_THAT(model->refused[0], HasSubstr(shard));
  std::filesystem::remove_all(At("run/checkpoints/step-00000009"));
  model = FindSavedModel(At("run"), "");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr(shard));
  EXPECT_THAT(model.error().message, HasSubstr("there is no other checkpoint"));
}

TEST_F(SavedModels, CheckpointsElsewhereAreFoundByTheConfiguration) {
  Configure("run/config.resolved.toml", "[checkpoint]\ndir = \"" + At("far") + "\"\n");
  Checkpoint("far/step-00000003");
  auto model = FindSavedModel(At("run"), "");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->checkpoint, At("far/step-00000003"));
}

TEST_F(SavedModels, ACheckpointFindsTheConfigurationOfItsRun) {
  Configure("run/config.resolved.toml");
  Checkpoint("run/checkpoints/step-00000009");
  Checkpoint("run/checkpoints/step-00000010");
  auto model = FindSavedModel(At("run/checkpoints/step-00000009"), "");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->checkpoint, At("run/checkpoints/step-00000009"));
  EXPECT_EQ(model->config.model.layers, 7);
}

TEST_F(SavedModels, AnImportedFolderHasItsConfigurationInside) {
  Configure("start/config.toml");
  Checkpoint("start/step-00000000");
  for (const char* path : {"start", "start/step-00000000"}) {
    auto model = FindSavedModel(At(path), "");
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->checkpoint, At("start/step-00000000"));
    EXPECT_EQ(model->config.model.layers, 7);
  }
}

TEST_F(SavedModels, ACheckpointAloneNeedsAConfiguration) {
  Checkpoint("far/step-00000003");
  Configure("other.toml");
  auto model = FindSavedModel(At("far"), "");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message,
            At("far/step-00000003") +
                ": no configuration beside it; name the run's folder instead, or --config FILE");
  EXPECT_TRUE(FindSavedModel(At("far"), At("other.toml")));
}

TEST_F(SavedModels, WhatIsNotThereIsNamed) {
  EXPECT_EQ(FindSavedModel(At("gone"), "").error().message,
            At("gone") + ": No such file or directory");
  Configure("run/config.resolved.toml");
  std::filesystem::create_directories(At("run/checkpoints"));
  EXPECT_EQ(FindSavedModel(At("run"), "").error().message,
            At("run/checkpoints") + ": holds no complete checkpoint");
  EXPECT_THAT(FindSavedModel(At("run/config.resolved.toml"), "").error().message,
              HasSubstr("not a folder"));
}

}  // namespace
}  // namespace adaptive_train::saved_model_test
