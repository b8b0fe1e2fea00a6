#include "runtime/exchange/rank_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/exchange/gradient_buckets.h"

namespace adaptive_train::rank_groups_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RankGroups, AreAllRanksInTheirOrderWithoutNodes) {
  const RankGroups groups = RankGroups::Of({}, 1, 3);
  EXPECT_THAT(groups.all, ElementsAre(0, 1, 2));
  EXPECT_EQ(groups.Places(), 0u);
  EXPECT_THAT(groups.inside, IsEmpty());
  EXPECT_THAT(groups.between, IsEmpty());
}

TEST(RankGroups, GoByPlaceAndThenByNode) {
  const std::vector<std::vector<int>> nodes = {{0, 2, 4}, {1, 3, 5}};
  const RankGroups groups = RankGroups::Of(nodes, 3, 6);
  EXPECT_THAT(groups.all, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(groups.inside, ElementsAre(1, 3, 5));
  EXPECT_THAT(groups.between, ElementsAre(2, 3));
  EXPECT_THAT(RankGroups::Of({{0, 1}, {2, 3}}, 0, 4).all, ElementsAre(0, 2, 1, 3));
}

TEST(RankGroups, WhatAPlacesRanksOwnLiesTogether) {
  const ModelDims dims{.layers = 1, .heads = 2, .hidden = 32, .sequence = 16, .vocab = 64};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const RankGroups groups = RankGroups::Of({{0, 1}, {2, 3}}, 0, 4);
  const GradientBuckets buckets(layout, groups.all, 3000);
  for (const GradientBucket& bucket : buckets) {
    std::size_t next = bucket.begin;
    for (const std::vector<int>& owners : groups.places) {
      for (const int owner : owners) {
        const GradientChunk chunk = buckets.ChunkOf(bucket, owner);
        EXPECT_EQ(chunk.begin, next);
        next = chunk.end;
      }
    }
    EXPECT_EQ(next, bucket.end);
  }
}

}  // namespace
}  // namespace adaptive_train::rank_groups_test
