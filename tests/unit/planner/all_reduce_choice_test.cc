// The all-reduce chosen for given links.
#include "launcher/planner/all_reduce_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace adaptive_train::all_reduce_choice_test {
namespace {

using testing::DoubleNear;

/// Nodes with links of 25 MB/s and 1 ms, inside 1 GB/s and 10 us.
LinkTable Slow(std::size_t nodes) {
  LinkTable links(nodes, {1e-3, 25e6});
  for (std::size_t n = 0; n < nodes; ++n)
    links.At(static_cast<int>(n), static_cast<int>(n)) = {1e-5, 1e9};
  return links;
}

const std::vector<int> kFour = {0, 1, 2, 3}, kPairs = {0, 0, 1, 1};

TEST(AllReduceSeconds, AreWhatTheoryAsksFor) {
  const LinkTable links = Slow(4);
  const auto seconds = [&](AllReduceWay way) { return AllReduceSeconds(way, links, kFour, 1e6); };
  EXPECT_THAT(seconds(AllReduceWay::kRing), DoubleNear(6 * (1e-3 + 0.25e6 / 25e6), 1e-9));
  EXPECT_THAT(seconds(AllReduceWay::kDoubling), DoubleNear(2 * (1e-3 + 1e6 / 25e6), 1e-9));
  EXPECT_THAT(seconds(AllReduceWay::kHalving), DoubleNear(4e-3 + 2 * 0.75e6 / 25e6, 1e-9));
  EXPECT_TRUE(std::isinf(seconds(AllReduceWay::kNodeFirst)));
  // Three: one hands in and is handed out to.
  EXPECT_THAT(AllReduceSeconds(AllReduceWay::kHalving, links, std::vector<int>{0, 1, 2}, 1e6),
              DoubleNear(2 * (1e-3 + 1e6 / 25e6) + 2 * (1e-3 + 0.5e6 / 25e6), 1e-9));
}

TEST(AllReduceSeconds, RanksOfANodeShareItsLink) {
  const LinkTable links = Slow(2);
  const auto seconds = [&](AllReduceWay way) { return AllReduceSeconds(way, links, kPairs, 1e6); };
  EXPECT_THAT(seconds(AllReduceWay::kRing), DoubleNear(6 * (1e-3 + 0.25e6 / 25e6), 1e-9));
  // Inside and back a half each; between, two rings of two share the link.
  EXPECT_THAT(seconds(AllReduceWay::kNodeFirst),
              DoubleNear(2 * (1e-5 + 0.5e6 / 1e9) + 2 * (1e-3 + 2 * 0.25e6 / 25e6), 1e-9));
  // Both ranks of a node send over it in one of the two steps.
  EXPECT_THAT(seconds(AllReduceWay::kDoubling),
              DoubleNear(1e-5 + 1e6 / 1e9 + 1e-3 + 2 * 1e6 / 25e6, 1e-9));
}

TEST(AllReduceSeconds, AMissingLinkTakesForever) {
  LinkTable links = Slow(4);
  links.At(3, 0).bytes_per_second = 0;
  EXPECT_TRUE(std::isinf(AllReduceSeconds(AllReduceWay::kRing, links, kFour, 8)));
  EXPECT_FALSE(std::isinf(AllReduceSeconds(AllReduceWay::kDoubling, links, kFour, 8)));
}

TEST(ChooseAllReduce, GoesBySize) {
  // 12 ms + 1.5 n/bw around the ring, 4 ms + 2 n/bw by doubling, 8 ms + 1.5 n/bw by halving.
  const AllReducePlan choice = ChooseAllReduce(LinkTable(4, {2e-3, 25e6}), kFour);
  EXPECT_EQ(choice.doubling_bytes, 65536);
  EXPECT_EQ(choice.halving_bytes, 262144);
  EXPECT_FALSE(choice.node_first);
}

TEST(ChooseAllReduce, BeginsInsideNodesWhereThatIsSooner) {
  EXPECT_TRUE(ChooseAllReduce(Slow(2), kPairs).node_first);
  EXPECT_FALSE(ChooseAllReduce(Slow(2), std::vector<int>{0, 0, 1}).node_first);
  LinkTable slow_inside = Slow(2);
  for (int n = 0; n < 2; ++n) slow_inside.At(n, n) = {1e-3, 10e6};
  EXPECT_FALSE(ChooseAllReduce(slow_inside, kPairs).node_first);
}

TEST(ChooseAllReduce, ASlowPairIsLeftToTheRing) {
  // Ranks 0 and 2, and 1 and 3, are no neighbours on the ring, and their links are slow.
  LinkTable links = Slow(4);
  for (const auto& [a, b] : {std::pair{0, 2}, std::pair{1, 3}})
    links.At(a, b) = links.At(b, a) = {1e-1, 1e6};
  EXPECT_EQ(ChooseAllReduce(links, kFour).halving_bytes, 0);
}

TEST(ChooseAllReduce, OneNodeKeepsTheDefault) {
  const AllReducePlan choice = ChooseAllReduce(Slow(1), std::vector<int>{0, 0, 0, 0});
  EXPECT_EQ(choice.doubling_bytes, AllReducePlan{}.doubling_bytes);
  EXPECT_EQ(choice.halving_bytes, 0);
  EXPECT_FALSE(choice.node_first);
}

}  // namespace
}  // namespace adaptive_train::all_reduce_choice_test
