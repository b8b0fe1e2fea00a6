#include "runtime/exchange/gradient_buckets.h"

#include <gtest/gtest.h>

#include "runtime/exchange/rank_groups.h"
#include "tests/unit/allocated_bytes.h"

namespace adaptive_train::gradient_buckets_test {
namespace {

ModelDims Small() { return {.layers = 3, .heads = 2, .hidden = 20, .sequence = 7, .vocab = 31}; }

std::vector<int> Ranks(int ranks) { return RankGroups::Of({}, 0, ranks).all; }

class GradientBucketsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradientBucketsOf, testing::Values(1, 2, 3, 4, 7, 16));

TEST_P(GradientBucketsOf, BucketsChunksAndPiecesCoverTheArenaOnce) {
  const ModelDims dims = Small();
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  for (const std::size_t most : {std::size_t{17}, std::size_t{1000}, std::size_t{1} << 20}) {
    const GradientBuckets buckets(layout, Ranks(GetParam()), most);
    auto end = static_cast<std::size_t>(layout.size());
    for (const GradientBucket& bucket : buckets) {
      EXPECT_EQ(bucket.end, end);
      EXPECT_GT(bucket.size(), 0u);
      EXPECT_LE(bucket.size(), most);
      end = bucket.begin;
      std::size_t at = bucket.begin;
      for (int rank = 0; rank < GetParam(); ++rank) {
        const GradientChunk chunk = buckets.ChunkOf(bucket, rank);
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

/// Where chunks begin within a range.
std::vector<std::size_t> EdgesWithin(const ParameterRange& range, const GradientBuckets& buckets,
                                     int ranks) {
  const auto begin = static_cast<std::size_t>(range.offset),
             end = begin + static_cast<std::size_t>(range.count);
  std::vector<std::size_t> edges;
  for (const GradientBucket& bucket : buckets) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t edge = buckets.ChunkOf(bucket, rank).begin;
      if (begin < edge && edge < end) edges.push_back(edge - begin);
    }
  }
  return edges;
}

/// Otherwise they would add in another order, or another owner would keep what rounding leaves.
TEST(GradientBuckets, TensorRanksCutWhatTheyHaveAlikeInTheSamePlaces) {
  ModelDims dims = Small();
  dims.kind = ModelKind::kBert;
  dims.hidden = 64;
  dims.vocab = 997;  // one has a token more
  dims.tie_embeddings = false;
  const StageSlice slice = StageSlice::Whole(dims);
  const ParameterLayout first(dims, std::span(&slice, 1), {0, 2}),
      second(dims, std::span(&slice, 1), {1, 2});
  ASSERT_NE(first.size(), second.size());
  for (int ranks = 2; ranks < 20; ++ranks) {
    const GradientBuckets of_first(first, Ranks(ranks), 10'000),
        of_second(second, Ranks(ranks), 10'000);
    for (const ParameterRange& range : first.ranges()) {
      if (range.split != TensorSplit::kNone) continue;
      EXPECT_EQ(EdgesWithin(range, of_first, ranks),
                EdgesWithin(*second.Find(range.name), of_second, ranks))
          << range.name << ", " << ranks << " ranks";
    }
  }
}

TEST(GradientBuckets, NoBucketHasTwoLayersAndNoPieceTwoMatrices) {
  const ModelDims dims = Small();
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const auto layers = LayersOf(layout);
  const GradientBuckets buckets(layout, Ranks(3), 500);
  for (const GradientBucket& bucket : buckets) {
    const LayerElements& layer = layers[static_cast<std::size_t>(bucket.layer)];
    EXPECT_GE(bucket.begin, layer.begin);
    EXPECT_LE(bucket.end, layer.end);
    const auto tokens = static_cast<std::size_t>(layout.Find("wte.weight")->count);
    EXPECT_TRUE(bucket.end <= tokens || bucket.begin >= tokens);
    for (int rank = 0; rank < 3; ++rank) {
      const GradientChunk chunk = buckets.ChunkOf(bucket, rank);
      for (const GradientPiece& piece : chunk.pieces) {
        for (const ParameterRange& range : layout.ranges()) {
          const auto begin = static_cast<std::size_t>(range.offset);
          const auto end = begin + static_cast<std::size_t>(range.count);
          if (end <= piece.begin || begin >= piece.end) continue;
          EXPECT_EQ(piece.selected, range.shape.size() > 1) << range.name;
          EXPECT_TRUE(!piece.selected || (begin <= piece.begin && piece.end <= end)) << range.name;
        }
      }
    }
  }
}

TEST(GradientBuckets, WhatTensorRanksHaveAlikeIsNotSelectedFrom) {
  const ModelDims dims = Small();
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const StageSlice whole = StageSlice::Whole(dims);
    const ParameterLayout layout(dims, std::span(&whole, 1), {rank, 2});
    const GradientBuckets buckets(layout, Ranks(3), 500);
    std::size_t selected = 0, of_split_matrices = 0;
    for (const GradientBucket& bucket : buckets)
      for (int owner = 0; owner < 3; ++owner)
        for (const GradientPiece& piece : buckets.ChunkOf(bucket, owner).pieces)
          selected += piece.selected ? piece.size() : 0;
    for (const ParameterRange& range : layout.ranges())
      if (range.shape.size() > 1 && range.name != "wpe.weight")
        of_split_matrices += static_cast<std::size_t>(range.count);
    EXPECT_GT(layout.Find("wpe.weight")->count, 0);
    EXPECT_EQ(selected, of_split_matrices);
  }
}

TEST(GradientBuckets, OwnersShareEveryBucketEvenly) {
  const ModelDims dims{.layers = 2, .heads = 2, .hidden = 128, .sequence = 64, .vocab = 512};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const GradientBuckets buckets(layout, Ranks(4), 100000);
  for (const GradientBucket& bucket : buckets) {
    if (bucket.size() < 1000) continue;
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_NEAR(static_cast<double>(buckets.RangeOf(bucket, rank).size()),
                  static_cast<double>(bucket.size()) / 4, 32);
  }
}

/// 6.7 billion parameters, 6,500 buckets. A thousand ranks need two more numbers per rank, but
/// nothing for each of their 6.5 million chunks.
TEST(GradientBuckets, AThousandRanksTakeNoMoreMemoryThanTwo) {
  const ModelDims dims{.layers = 32, .heads = 32, .hidden = 4096, .sequence = 2048, .vocab = 50257};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const auto bytes_for = [&](int ranks) {
    const std::size_t before = AllocatedBytes();
    const GradientBuckets buckets(layout, Ranks(ranks), std::size_t{1} << 20);
    EXPECT_GT(buckets.size(), 6000U);
    EXPECT_GT(buckets.ChunkOf(buckets[0], ranks - 1).size(), 0U);
    return AllocatedBytes() - before;
  };
  const std::size_t two = bytes_for(2);
  EXPECT_GT(two, 6000 * sizeof(GradientBucket)) << "allocations are counted";
  EXPECT_LT(bytes_for(1000), two + 1000 * 32);
}

}  // namespace
}  // namespace adaptive_train::gradient_buckets_test
