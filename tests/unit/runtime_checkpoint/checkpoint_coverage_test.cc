// Which shards fit together: state once in all, residuals once per shard.
#include "runtime/checkpoint/checkpoint_coverage.h"

#include <gmock/gmock.h>

namespace adaptive_train::checkpoint_coverage_test {
namespace {

const std::vector<CheckpointParameter> kParameters = {
    {"w", {2, 5}, 10}, {"b", {3}, 3}, {"none", {0}, 0}};

std::string OutcomeOf(const std::vector<ShardIndex>& shards) {
  const auto checked = CheckCoverage(kParameters, shards);
  return checked ? "covered" : checked.error().message;
}

/// Two arenas that split `w` by columns and have `b` twice; the first is shared out over two
/// shards.
class CoverageTest : public testing::Test {
 protected:
  CoverageTest() {
    const ParameterBlock left{"w", {}, {{0, 1}, {3, 5}}}, right{"w", {}, {{1, 3}}};
    shards_[0].arena = {{left, {"b"}, {"none"}}, BucketRule{{9}, 100, 2, 1}};
    shards_[1].place = 1;
    shards_[2].arena = {{{.name = "b", .copy = true}, right}, BucketRule::Whole(7, 1)};
    shards_[2].arena_of = 2;
    for (std::size_t i = 0; i < 3; ++i) shards_[i].elements = 4 + (i == 1 ? 1 : 0);
  }
  std::string Outcome() const { return OutcomeOf(shards_); }

  std::vector<ShardIndex> shards_{3};
};

TEST_F(CoverageTest, StridedBlocksWhoseGapsTheOtherFills) {
  EXPECT_EQ(Outcome(), "covered");
  shards_[1].residuals = 9;
  shards_[2].residuals = 4;
  EXPECT_EQ(Outcome(), "covered") << "of some shards, without copies";
}

TEST_F(CoverageTest, ElementsThatNoArenaHas) {
  shards_[2].arena->blocks[1].columns = {{1, 2}};
  shards_[2].arena->rule = BucketRule::Whole(5, 1);
  EXPECT_EQ(Outcome(), "w: 2 of 10 elements are in no shard");
  shards_.pop_back();
  EXPECT_EQ(Outcome(), "w: 4 of 10 elements are in no shard");
  EXPECT_EQ(OutcomeOf({}), "w: 10 of 10 elements are in no shard");
}

TEST_F(CoverageTest, ElementsThatTwoArenasOrOneHasTwice) {
  shards_[2].arena->blocks[1] = {"w", {1, 2}, {{1, 4}}};
  shards_[2].arena->rule = BucketRule::Whole(6, 1);
  EXPECT_EQ(Outcome(),
            "w: rows [1, 2) of columns [3, 4) are in shard-00000 and again in shard-00002");
  shards_[2].arena->blocks = {{.name = "b", .copy = true}, {.name = "b", .copy = true}};
  EXPECT_EQ(Outcome(), "b: elements [0, 3) are in shard-00002 and again in shard-00002");
  shards_[2].arena->blocks = {{"b"}, {"w", {}, {{1, 3}}}};
  shards_[2].arena->rule = BucketRule::Whole(7, 1);
  EXPECT_EQ(Outcome(), "b: elements [0, 3) are in shard-00000 and again in shard-00002");
}

TEST_F(CoverageTest, PlacesThatAreMissingTakenTwiceOrBeyondTheRule) {
  shards_[1].place = 0;
  EXPECT_EQ(Outcome(), "shard-00000 and shard-00001 are both place 0 of shard-00000's arena");
  shards_[1].place = 2;
  EXPECT_EQ(Outcome(), "shard-00001: place 2, the rule has 2");
  shards_[0].arena->rule.places = 4;
  EXPECT_EQ(Outcome(), "2 of 4 places of shard-00000's arena are in no shard");
}

TEST_F(CoverageTest, ArenasThatAreNamedWrongly) {
  shards_[1].arena_of = 1;
  EXPECT_EQ(Outcome(), "shard-00001: arena_of is 1, which has no arena");
  shards_[1].arena_of = 3;
  EXPECT_EQ(Outcome(), "shard-00001: arena_of is 3, which has no arena");
  shards_[1].arena_of = 0;
  shards_[2].arena_of = 0;
  EXPECT_EQ(Outcome(), "shard-00002: has an arena and names that of shard-00000");
}

TEST_F(CoverageTest, NumbersThatAreNotTheRules) {
  shards_[0].elements = 5;
  EXPECT_EQ(Outcome(), "shard-00000: 5 elements, its place has 4");
  shards_[0].elements = 4;
  shards_[2].residuals = 7;
  EXPECT_EQ(Outcome(), "shard-00002: 7 elements of residuals, the arena has 4");
  shards_[0].arena->rule.part_ends = {10};
  EXPECT_EQ(Outcome(), "shard-00000: a rule for 10 elements, the arena has 9");
}

/// As formats 2 and 3 list pieces: two shards that have half of each arena and all residuals of
/// some.
class ListedCoverageTest : public testing::Test {
 protected:
  ListedCoverageTest() {
    for (ShardIndex& shard : shards_) shard.listed.emplace();
    for (std::size_t arena = 0; arena < kResiduals; ++arena) {
      Pieces(0, arena) = {{"w", 0, 4}, {"w", 6, 10}};
      Pieces(1, arena) = {{"w", 4, 6}, {"b", 0, 3}};
    }
    for (const std::size_t shard : {0, 1}) Pieces(shard, kResiduals) = {{"w", 0, 10}, {"b", 1, 2}};
  }
  std::vector<ListedPiece>& Pieces(std::size_t shard, std::size_t arena) {
    return (*shards_[shard].listed)[arena];
  }
  std::string Outcome() const { return OutcomeOf(shards_); }

  std::vector<ShardIndex> shards_{2};
};

TEST_F(ListedCoverageTest, RangesWithGapsThatTheOtherFills) { EXPECT_EQ(Outcome(), "covered"); }

TEST_F(ListedCoverageTest, AMissingRangeOfAnArena) {
  Pieces(1, 1).erase(Pieces(1, 1).begin());
  EXPECT_EQ(Outcome(), "first_moments of w: 2 of 10 elements are in no shard");
  Pieces(1, 0).pop_back();
  EXPECT_EQ(Outcome(), "parameters of b: 3 of 3 elements are in no shard");
}

TEST_F(ListedCoverageTest, ARangeThatTwoShardsOrOneHasTwice) {
  Pieces(1, 2)[0] = {"w", 3, 6};
  EXPECT_EQ(Outcome(),
            "second_moments of w: elements [3, 4) are in shard-00000 and again in shard-00001");
  Pieces(1, 2)[0] = {"w", 4, 6};
  Pieces(1, 2).push_back({"b", 2, 3});
  EXPECT_EQ(Outcome(),
            "second_moments of b: elements [2, 3) are in shard-00001 and again in shard-00001");
}

TEST_F(ListedCoverageTest, ResidualsMayBeAnywhereOrNowhere) {
  Pieces(0, kResiduals) = {{"b", 2, 3}, {"w", 7, 8}, {"b", 0, 2}};
  EXPECT_EQ(Outcome(), "covered");
  for (const std::size_t shard : {0, 1}) Pieces(shard, kResiduals).clear();
  EXPECT_EQ(Outcome(), "covered");
}

TEST_F(ListedCoverageTest, ResidualsThatAShardHasTwiceOrThatAreNoParameters) {
  Pieces(1, kResiduals).push_back({"w", 9, 10});
  EXPECT_EQ(Outcome(),
            "residuals of w: elements [9, 10) are in shard-00001 and again in shard-00001");
  Pieces(1, kResiduals).back() = {"w", 10, 11};
  EXPECT_EQ(Outcome(), "shard-00001: elements of w up to 11, the parameter has 10");
  Pieces(1, kResiduals).back() = {"other", 0, 1};
  EXPECT_EQ(Outcome(), "shard-00001: \"other\" is not a parameter of the model");
}

}  // namespace
}  // namespace adaptive_train::checkpoint_coverage_test
