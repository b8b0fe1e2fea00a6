// Which shards fit together: state once in all, residuals once per shard.
#include "runtime/checkpoint/checkpoint_coverage.h"

#include <gmock/gmock.h>

namespace adaptive_train {
namespace {

/// Two parameters, two shards that have half of each arena and all residuals of some.
class CoverageTest : public testing::Test {
 protected:
  CoverageTest() {
    for (std::size_t arena = 0; arena < kResiduals; ++arena) {
      shards_[0].pieces[arena] = {{"w", 0, 4}, {"w", 6, 10}};
      shards_[1].pieces[arena] = {{"w", 4, 6}, {"b", 0, 3}};
    }
    for (ShardIndex& shard : shards_) shard.pieces[kResiduals] = {{"w", 0, 10}, {"b", 1, 2}};
  }
  std::string Outcome() const {
    const auto checked =
        CheckCoverage({{"w", {2, 5}, 10}, {"b", {3}, 3}, {"none", {0}, 0}}, shards_);
    return checked ? "covered" : checked.error().message;
  }

  std::vector<ShardIndex> shards_{2};
};

TEST_F(CoverageTest, RangesWithGapsThatTheOtherFills) { EXPECT_EQ(Outcome(), "covered"); }

TEST_F(CoverageTest, AMissingRangeOfAnArena) {
  shards_[1].pieces[1].erase(shards_[1].pieces[1].begin());
  EXPECT_EQ(Outcome(), "first_moments of w: elements [4, 6) are in no shard");
  shards_[1].pieces[0].pop_back();
  EXPECT_EQ(Outcome(), "parameters of b: elements [0, 3) are in no shard");
}

TEST_F(CoverageTest, ARangeThatTwoShardsOrOneHasTwice) {
  shards_[1].pieces[2][0] = {"w", 3, 6};
  EXPECT_EQ(Outcome(),
            "second_moments of w: elements [3, 4) are in shard-00000 and again in shard-00001");
  shards_[1].pieces[2][0] = {"w", 4, 6};
  shards_[1].pieces[2].push_back({"b", 2, 3});
  EXPECT_EQ(Outcome(),
            "second_moments of b: elements [2, 3) are in shard-00001 and again in shard-00001");
}

TEST_F(CoverageTest, ResidualsMayBeAnywhereOrNowhere) {
  shards_[0].pieces[kResiduals] = {{"b", 2, 3}, {"w", 7, 8}, {"b", 0, 2}};
  EXPECT_EQ(Outcome(), "covered");
  for (ShardIndex& shard : shards_) shard.pieces[kResiduals].clear();
  EXPECT_EQ(Outcome(), "covered");
}

TEST_F(CoverageTest, ResidualsThatAShardHasTwiceOrThatAreNoParameters) {
  shards_[1].pieces[kResiduals].push_back({"w", 9, 10});
  EXPECT_EQ(Outcome(),
            "residuals of w: elements [9, 10) are in shard-00001 and again in shard-00001");
  shards_[1].pieces[kResiduals].back() = {"w", 10, 11};
  EXPECT_EQ(Outcome(), "residuals of w: shard-00001 has elements up to 11, the parameter has 10");
  shards_[1].pieces[kResiduals].back() = {"other", 0, 1};
  EXPECT_EQ(Outcome(), "shard-00001: \"other\" is not a parameter of the manifest");
}

}  // namespace
}  // namespace adaptive_train
