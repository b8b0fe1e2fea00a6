// Every share-out of the units gives the same sum, bit by bit; what is kept on the way is little.
#include "core/unit_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace adaptive_train::unit_tree_test {
namespace {

/// Numbers whose sum depends on the order.
std::vector<float> Numbers(std::int64_t units) {
  std::mt19937 random(static_cast<unsigned>(units));
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(units));
  for (float& number : numbers) number = normal(random) * std::exp2(8 * normal(random));
  return numbers;
}

/// One rank: its units come in order. Gives the sums of its nodes.
std::vector<float> SumsOf(const UnitRange& own, std::span<const float> numbers,
                          std::int64_t units) {
  std::vector<float> sums;
  for (std::int64_t unit = own.begin; unit < own.end; ++unit) {
    float sum = numbers[static_cast<std::size_t>(unit)];
    const auto now = NodesOf({own.begin, unit + 1}, units).size();
    for (; sums.size() >= now; sums.pop_back()) sum = sums.back() + sum;
    sums.push_back(sum);
  }
  return sums;
}

/// All ranks' sums by the tree. `cuts` are the first units of all ranks but the first.
float SumBy(const std::vector<std::int64_t>& cuts, std::span<const float> numbers) {
  const auto units = std::ssize(numbers);
  std::vector<UnitRange> nodes;
  std::vector<float> sums;
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank <= cuts.size(); ++rank) {
    const UnitRange own{begin, rank < cuts.size() ? cuts[rank] : units};
    for (const UnitRange& node : NodesOf(own, units)) nodes.push_back(node);
    for (const float sum : SumsOf(own, numbers, units)) sums.push_back(sum);
    begin = own.end;
  }
  EXPECT_EQ(nodes.size(), sums.size());
  for (const auto& [into, from] : AdditionsToRoot(nodes, units)) sums[into] += sums[from];
  return sums[0];
}

TEST(UnitTree, AnyCutGivesTheSameSum) {
  bool order_matters = false;
  for (std::int64_t units = 1; units <= 9; ++units) {
    const std::vector<float> numbers = Numbers(units);
    const float alone = SumBy({}, numbers);
    float in_a_row = 0;
    for (const float number : numbers) in_a_row += number;
    order_matters = order_matters || in_a_row != alone;
    // Bit u of a mask: a rank begins with unit u + 1.
    for (unsigned mask = 0; mask < (1u << (units - 1)); ++mask) {
      std::vector<std::int64_t> cuts;
      for (std::int64_t u = 1; u < units; ++u)
        if ((mask >> (u - 1)) & 1) cuts.push_back(u);
      EXPECT_EQ(SumBy(cuts, numbers), alone) << units << " units, cut " << mask;
    }
  }
  EXPECT_TRUE(order_matters);
}

TEST(UnitTree, ManyUnitsAndUnalignedRanks) {
  const std::vector<float> numbers = Numbers(1000);
  const float alone = SumBy({}, numbers);
  EXPECT_EQ(SumBy({333, 667}, numbers), alone);
  EXPECT_EQ(SumBy({1, 2, 5, 999}, numbers), alone);
  EXPECT_EQ(SumBy({512}, numbers), alone);
}

TEST(UnitTree, NodesAreTheLargestAndEndWithTheUnits) {
  using Nodes = std::vector<UnitRange>;
  EXPECT_EQ(NodesOf({0, 8}, 8), (Nodes{{0, 8}}));
  EXPECT_EQ(NodesOf({3, 8}, 8), (Nodes{{3, 4}, {4, 8}}));
  EXPECT_EQ(NodesOf({4, 7}, 7), (Nodes{{4, 7}}));
  EXPECT_EQ(NodesOf({4, 6}, 7), (Nodes{{4, 6}}));
  EXPECT_EQ(NodesOf({1, 7}, 16), (Nodes{{1, 2}, {2, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(NodesOf({2, 2}, 4), Nodes{});
}

TEST(UnitTree, KeepsLittle) {
  EXPECT_EQ(MostKept({0, 1}, 4), 0);
  EXPECT_EQ(MostKept({0, 2}, 4), 1);
  EXPECT_EQ(MostKept({0, 8}, 8), 3);
  EXPECT_EQ(MostKept({1, 5}, 8), 2);
  for (std::int64_t size = 1; size <= 20; ++size) {
    std::int64_t most = 0;
    for (std::int64_t begin = 0; begin < 64; ++begin)
      most = std::max(most, MostKept({begin, begin + size}, 128));
    EXPECT_EQ(MostKeptOfAny(size), most) << size;
  }
}

TEST(UnitTree, NumbersOfUnits) {
  EXPECT_EQ(SumOfUnits({}), 0);
  const double big = 1e16;
  EXPECT_EQ(SumOfUnits(std::vector<double>{big, 1, 1, -big}), (big + 1) + (1 - big));
  EXPECT_EQ(SumOfUnits(std::vector<double>{1, 2, 3}), 6);
}

}  // namespace
}  // namespace adaptive_train::unit_tree_test
