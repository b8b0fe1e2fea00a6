// Every pair once, in rounds without a node twice, and no more rounds than needed.
#include "launcher/measure/link_rounds.h"

#include <gtest/gtest.h>

#include <set>

namespace adaptive_train::link_rounds_test {
namespace {

/// All pairs of the rounds; fails if a round has a node twice.
std::multiset<RankPair> PairsIn(const MeasureRounds& rounds) {
  std::multiset<RankPair> pairs;
  for (const auto& round : rounds) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_LT(a, b);
      EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
      pairs.insert({a, b});
    }
  }
  return pairs;
}

TEST(AllPairs, EachPairOnceInAsFewRoundsAsCanBe) {
  for (int nodes = 0; nodes <= 33; ++nodes) {
    const MeasureRounds rounds = AllPairs(nodes);
    const std::multiset<RankPair> pairs = PairsIn(rounds);
    const auto n = static_cast<std::size_t>(nodes);
    EXPECT_EQ(pairs.size(), nodes < 2 ? 0 : n * (n - 1) / 2) << nodes;
    EXPECT_EQ(std::set<RankPair>(pairs.begin(), pairs.end()).size(), pairs.size()) << nodes;
    EXPECT_EQ(rounds.size(), nodes < 2 ? 0 : n - 1 + n % 2) << nodes;
    for (const auto& [a, b] : pairs) EXPECT_TRUE(a >= 0 && b < nodes);
  }
}

TEST(RoundsOf, TakesEachGivenPairOnce) {
  const std::vector<RankPair> pairs = {{0, 1}, {0, 2}, {1, 2}, {3, 4}, {0, 1}};
  const MeasureRounds rounds = RoundsOf(pairs);
  EXPECT_EQ(PairsIn(rounds), (std::multiset<RankPair>{{0, 1}, {0, 2}, {1, 2}, {3, 4}}));
  EXPECT_EQ(rounds.size(), 3u);
  EXPECT_TRUE(RoundsOf({}).empty());
}

}  // namespace
}  // namespace adaptive_train::link_rounds_test
