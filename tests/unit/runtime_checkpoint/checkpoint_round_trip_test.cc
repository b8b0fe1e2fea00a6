// What some number of ranks wrote, any number reads, bit for bit.
#include <gmock/gmock.h>

#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_round_trip_test {
namespace {

using testing::ElementsAre;

class RoundTripTest : public CheckpointTest, public testing::WithParamInterface<int> {};

TEST_F(CheckpointTest, AnEmptyOrMissingFolderHasNone) {
  EXPECT_FALSE(Newest().step);
  std::filesystem::remove(path_);
  EXPECT_FALSE(Newest().step);
  EXPECT_EQ(Save(1, {}), "saved") << "the folder is made";
}

TEST_P(RoundTripTest, EveryBitAndNumber) {
  for (const ModelDims& dims : {kSmallDims, kLargeDims}) {
    const std::int64_t step = 100 + dims.hidden;
    ASSERT_EQ(Save(step, {.ranks = GetParam(), .attempt = 7}, dims), "saved");
    const NewestCheckpoint newest = Newest(dims);
    EXPECT_EQ(newest.step, step);
    EXPECT_THAT(newest.unfinished, ElementsAre());
    EXPECT_EQ(Check(step, dims), "whole");
  }
}

/// Readers that each hold a part, cut at other places than the writers' parts.
TEST_P(RoundTripTest, PartsForAnyNumberOfReaders) {
  const ParameterLayout layout = WholeLayout(kLargeDims);
  ASSERT_EQ(Save(5, {.ranks = GetParam()}, kLargeDims), "saved");
  auto reader = CheckpointReader::Open(CheckpointFolder(path_).PathOf(5));
  ASSERT_TRUE(reader) << reader.error().message;
  const SavedState written(layout, 5);
  for (std::int64_t readers = 1; readers <= 4; ++readers) {
    SavedState read(layout);
    for (std::int64_t rank = 0; rank < readers; ++rank) {
      const ElementRanges part{PartOf(layout.size(), rank, readers)};
      auto done = reader->Read({BlocksOf(layout), part}, read.Spans());
      ASSERT_TRUE(done) << done.error().message;
    }
    EXPECT_EQ(read.arenas, written.arenas);
  }
}

INSTANTIATE_TEST_SUITE_P(Writers, RoundTripTest, testing::Values(1, 2, 3, 4));

TEST_F(CheckpointTest, OneRangeOfOneParameter) {
  ASSERT_EQ(Save(9, {.ranks = 3}), "saved");
  auto reader = CheckpointReader::Open(CheckpointFolder(path_).PathOf(9));
  ASSERT_TRUE(reader);
  std::vector<float> moments(256 * 8, -1.0F);
  ASSERT_TRUE(reader->Read({{{"wte.weight"}}, {{600, 1301}}}, Only(1, moments)));
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    const bool asked = 600 <= place && place < 1301;
    ASSERT_EQ(moments[i], asked ? SavedState::ValueAt(9, 1, place) : -1.0F);
  }
  moments.pop_back();
  EXPECT_EQ(reader->Read({{{"wte.weight"}}, {}}, Only(1, moments)).error().message,
            path_ + "/step-00000009: its model has 2048 elements where this run has 2047");
  EXPECT_EQ(reader->Read({{{"h.7.ln_1.bias"}}, {}}, Only(1, moments)).error().message,
            path_ + "/step-00000009: \"h.7.ln_1.bias\" is not a parameter of the model");
}

TEST_F(CheckpointTest, EvaluationReadsParametersAlone) {
  ASSERT_EQ(Save(2, {.ranks = 2}), "saved");
  const ParameterLayout layout = WholeLayout(kSmallDims);
  SavedState read(layout);
  auto reader = CheckpointReader::Open(CheckpointFolder(path_).PathOf(2));
  ASSERT_TRUE(reader->Read(ReadingRank::OfAll(layout), {&host_memory, {read.arenas[0]}}));
  EXPECT_EQ(read.arenas[0], SavedState(layout, 2).arenas[0]);
  EXPECT_EQ(read.arenas[1], SavedState(layout).arenas[1]);
}

/// Block-cyclic owners, which cut parameters anywhere.
TEST_F(CheckpointTest, BucketsSharedOutByARule) {
  const ParameterLayout layout = WholeLayout(kLargeDims);
  for (const std::int64_t block : {700, 4096, 100'000}) {
    SavingRanks ranks;
    const BucketRule rule{{layout.size() / 2, layout.size()}, block, 3};
    for (int rank = 0; rank < 3; ++rank)
      ranks.Add(path_, kLargeDims, {.ranks = 3}, {BlocksOf(layout), rule}, {0, rank});
    std::int64_t bytes = 0;
    for (const auto& writer : ranks.writers) bytes += writer->snapshot_bytes();
    EXPECT_EQ(bytes, layout.size() * 12);
    ASSERT_EQ(ranks.Save(block, SavedState(layout, block)), "saved");
    EXPECT_EQ(Check(block, kLargeDims), "whole");
  }
}

/// Two stages with tied embeddings, the second of them sharded over two ranks: each writes what it
/// owns, and the second stage's copy of the embedding is nobody's.
TEST_F(CheckpointTest, StagesAndOptimizerShardsMakeOneCheckpoint) {
  ModelDims dims = kSmallDims;
  dims.layers = 3;
  const ParameterLayout first(dims, {0, 1, true, false}), second(dims, {1, 3, false, true});
  const std::int64_t copy = second.Find("wte.weight")->offset;
  SavingRanks ranks;
  const SavingRanks::Options options{.ranks = 3};
  ranks.Add(path_, dims, options, {BlocksOf(first), BucketRule::Whole(first.size(), 1)}, {0, 0});
  const CheckpointArena shared{BlocksOf(second), BucketRule::Whole(second.size(), 2)};
  for (int half = 0; half < 2; ++half) ranks.Add(path_, dims, options, shared, {1, half});
  const SavedState first_state(first, 4), second_state(second, 4);
  for (std::size_t rank = 0; rank < 3; ++rank)
    ASSERT_TRUE(ranks.writers[rank]->Begin(
        StepOf(4), rank == 0 ? first_state.ConstSpans() : second_state.ConstSpans()));
  ASSERT_EQ(ranks.Finish(), "saved");
  EXPECT_EQ(Check(4, dims), "whole");
  // A stage reads its own layout, the copy of the embedding included.
  SavedState read(second);
  auto reader = CheckpointFolder(path_).Open(4, OwnerOf(dims));
  ASSERT_TRUE(reader) << reader.error().message;
  auto done = reader->Read(ReadingRank::OfAll(second), read.Spans());
  ASSERT_TRUE(done) << done.error().message;
  const SavedState all(WholeLayout(dims), 4);
  EXPECT_TRUE(
      std::equal(read.arenas[0].begin() + copy, read.arenas[0].end(), all.arenas[0].begin()));
}

TEST_F(CheckpointTest, WhatWasSavedIsTheStateAtBegin) {
  SavingRanks ranks(path_, kLargeDims, {.ranks = 2});
  SavedState state(WholeLayout(kLargeDims), 1);
  for (const auto& writer : ranks.writers)
    ASSERT_TRUE(writer->Begin(StepOf(1), state.ConstSpans()));
  for (auto& arena : state.arenas) std::fill(arena.begin(), arena.end(), -1.0F);
  EXPECT_EQ(ranks.Finish(), "saved");
  EXPECT_EQ(Check(1, kLargeDims), "whole");
}

}  // namespace
}  // namespace adaptive_train::checkpoint_round_trip_test
