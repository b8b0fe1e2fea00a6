// A Hugging Face folder becomes a checkpoint and a checkpoint such a folder, with the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/host_memory.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/hf_checkpoint.h"
#include "runtime/checkpoint/hf_model.h"
#include "tests/unit/runtime_checkpoint/temporary_hf_folder.h"

namespace adaptive_train::hf_checkpoint_test {
namespace {

using testing::HasSubstr;

class HfCheckpoint : public testing::Test {
 protected:
  HfCheckpoint() {
    dims_ = {.layers = 2, .heads = 2, .hidden = 4, .sequence = 3, .vocab = 5};
    const ParameterLayout layout(dims_, StageSlice::Whole(dims_));
    parameters_.resize(static_cast<std::size_t>(layout.size()));
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i] = static_cast<float>(i);
    EXPECT_TRUE(WriteHfModel(folder_ / "hf", dims_, parameters_));
  }

  TemporaryHfFolder folder_;
  ModelDims dims_;
  std::vector<float> parameters_;
};

TEST_F(HfCheckpoint, AnImportIsACheckpointOfStepZeroWithoutMoments) {
  auto imported = ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start");
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->path, folder_ / "start/step-00000000");
  EXPECT_EQ(imported->parameters, static_cast<std::int64_t>(parameters_.size()));
  auto reader = CheckpointReader::Open(imported->path);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_TRUE(reader->Verify());
  EXPECT_EQ(reader->manifest().at.step, 0);
  EXPECT_EQ(reader->manifest().at.updates, 0);
  const ParameterLayout layout(imported->dims, StageSlice::Whole(imported->dims));
  std::vector<float> parameters(parameters_.size()), first(parameters_.size(), 1.0F), second(first);
  kernels::HostMemory host;
  auto read = reader->Read(ReadingRank::OfAll(layout), {&host, {parameters, first, second}});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(parameters, parameters_);
  EXPECT_THAT(first, testing::Each(0.0F));
  EXPECT_THAT(second, testing::Each(0.0F));
}

TEST_F(HfCheckpoint, AnExportOfAnImportHasTheSameBytes) {
  ASSERT_TRUE(ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start"));
  auto step = ExportCheckpoint(folder_ / "start/step-00000000", dims_, folder_ / "again");
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_EQ(*step, 0);
  for (const char* file : {"/config.json", "/model.safetensors"}) {
    EXPECT_FALSE(folder_.Read(std::string("hf") + file).empty());
    EXPECT_EQ(folder_.Read(std::string("hf") + file), folder_.Read(std::string("again") + file));
  }
}

TEST_F(HfCheckpoint, OtherDimensionsThanTheCheckpointsAreRefused) {
  ASSERT_TRUE(ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start"));
  dims_.layers = 3;
  auto step = ExportCheckpoint(folder_ / "start/step-00000000", dims_, folder_ / "again");
  ASSERT_FALSE(step);
  EXPECT_THAT(step.error().message, HasSubstr("holds another model's parameters"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "again"));
}

TEST_F(HfCheckpoint, AFlippedBitIsNotExported) {
  ASSERT_TRUE(ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start"));
  const std::string shard = "start/step-00000000/shard-00000.bin";
  std::string bytes = folder_.Read(shard);
  bytes.at(40) ^= 1;
  folder_.Write(shard, bytes);
  auto step = ExportCheckpoint(folder_ / "start/step-00000000", dims_, folder_ / "again");
  ASSERT_FALSE(step);
  EXPECT_THAT(step.error().message, HasSubstr("shard-00000.bin"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "again"));
}

TEST_F(HfCheckpoint, ASecondImportLeavesTheFirstAlone) {
  ASSERT_TRUE(ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start"));
  auto again = ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message,
              HasSubstr("step-00000000: there already; name another folder"));
}

TEST_F(HfCheckpoint, AFailedImportLeavesNothing) {
  folder_.Write("hf/model.safetensors", "torn");
  auto imported = ImportCheckpoint(folder_ / "hf", std::nullopt, folder_ / "start");
  ASSERT_FALSE(imported);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "start"));
}

}  // namespace
}  // namespace adaptive_train::hf_checkpoint_test
