#include "runtime/exchange/gradient_buckets.h"

#include <gtest/gtest.h>

#include "runtime/exchange/rank_groups.h"

namespace adaptive_train {
namespace {

ModelDims Small() { return {.layers = 3, .heads = 2, .hidden = 20, .sequence = 7, .vocab = 31}; }

std::vector<int> Ranks(int ranks) { return RankGroups::Of({}, 0, ranks).all; }

class CutBucketsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CutBucketsOf, testing::Values(1, 2, 3, 4, 7, 16));

TEST_P(CutBucketsOf, BucketsChunksAndPiecesCoverTheArenaOnce) {
  const ModelDims dims = Small();
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  for (const std::size_t most : {std::size_t{17}, std::size_t{1000}, std::size_t{1} << 20}) {
    const auto buckets = CutBuckets(layout, Ranks(GetParam()), most);
    auto end = static_cast<std::size_t>(layout.size());
    for (const GradientBucket& bucket : buckets) {
      EXPECT_EQ(bucket.end, end);
      EXPECT_GT(bucket.size(), 0u);
      EXPECT_LE(bucket.size(), most);
      end = bucket.begin;
      ASSERT_EQ(bucket.chunks.size(), static_cast<std::size_t>(GetParam()));
      std::size_t at = bucket.begin;
      for (const GradientChunk& chunk : bucket.chunks) {
        EXPECT_EQ(chunk.begin, at);
        for (const GradientPiece& piece : chunk.pieces) {
          EXPECT_EQ(piece.begin, at);
          EXPECT_GT(piece.size(), 0u);
          at = piece.end;
        }
        EXPECT_EQ(chunk.end, at);
        EXPECT_TRUE(chunk.end == bucket.end || (chunk.end - bucket.begin) % 16 == 0);
      }
      EXPECT_EQ(at, bucket.end);
    }
    EXPECT_EQ(end, 0u);
  }
}

TEST(CutBuckets, NoBucketHasTwoLayersAndNoPieceTwoMatrices) {
  const ModelDims dims = Small();
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const auto layers = LayersOf(layout);
  for (const GradientBucket& bucket : CutBuckets(layout, Ranks(3), 500)) {
    const LayerElements& layer = layers[static_cast<std::size_t>(bucket.layer)];
    EXPECT_GE(bucket.begin, layer.begin);
    EXPECT_LE(bucket.end, layer.end);
    const auto tokens = static_cast<std::size_t>(layout.Find("wte.weight")->count);
    EXPECT_TRUE(bucket.end <= tokens || bucket.begin >= tokens);
    for (const GradientChunk& chunk : bucket.chunks) {
      for (const GradientPiece& piece : chunk.pieces) {
        for (const ParameterRange& range : layout.ranges()) {
          const auto begin = static_cast<std::size_t>(range.offset);
          const auto end = begin + static_cast<std::size_t>(range.count);
          if (end <= piece.begin || begin >= piece.end) continue;
          EXPECT_EQ(piece.matrix, range.shape.size() > 1) << range.name;
          EXPECT_TRUE(!piece.matrix || (begin <= piece.begin && piece.end <= end)) << range.name;
        }
      }
    }
  }
}

TEST(CutBuckets, OwnersShareEveryBucketEvenly) {
  const ModelDims dims{.layers = 2, .heads = 2, .hidden = 128, .sequence = 64, .vocab = 512};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  for (const GradientBucket& bucket : CutBuckets(layout, Ranks(4), 100000)) {
    if (bucket.size() < 1000) continue;
    for (const GradientChunk& chunk : bucket.chunks)
      EXPECT_NEAR(static_cast<double>(chunk.size()), static_cast<double>(bucket.size()) / 4, 32);
  }
}

}  // namespace
}  // namespace adaptive_train
