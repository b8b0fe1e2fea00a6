// The order of samples: each occurs once, every epoch and seed has another order, and there is no
// pattern.
#include "runtime/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace adaptive_train::permutation_test {
namespace {

std::vector<std::int64_t> Order(std::int64_t size, std::uint64_t seed, std::uint32_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(permutation(i));
  return order;
}

TEST(Permutation, VisitsEveryNumberOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<std::int64_t> order = Order(size, 9, 0);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < size; ++i)
      ASSERT_EQ(i, order[static_cast<std::size_t>(i)]) << "size " << size;
  }
}

TEST(Permutation, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(Order(100, 1, 0), Order(100, 1, 0));
  EXPECT_NE(Order(100, 1, 0), Order(100, 2, 0));
  EXPECT_NE(Order(100, 1, 0), Order(100, 1, 1));
}

TEST(Permutation, AllOrdersOfThreeComeEquallyOften) {
  constexpr int kSeeds = 6000;
  std::vector<int> counts(27);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<std::int64_t> order = Order(3, seed, 0);
    ++counts[static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  EXPECT_EQ(6, std::count_if(counts.begin(), counts.end(), [](int count) { return count > 0; }));
  for (const int count : counts)
    EXPECT_TRUE(count == 0 || std::abs(count - kSeeds / 6) < 150) << count;
}

TEST(Permutation, NeighboursAreFarApart) {
  constexpr std::int64_t kSize = 10000;
  const std::vector<std::int64_t> order = Order(kSize, 5, 3);
  double product = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    product += (static_cast<double>(order[i]) / kSize - 0.5) *
               (static_cast<double>(order[i - 1]) / kSize - 0.5);
  }
  EXPECT_LT(std::abs(product / kSize * 12), 4 / std::sqrt(kSize)) << "correlation of neighbours";
}

TEST(Permutation, LargeRangesNeedNoTable) {
  const std::int64_t size = std::int64_t{1} << 40;
  const Permutation permutation(size, 1, 0);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t window = permutation(size - 1 - i);
    EXPECT_GE(window, 0);
    EXPECT_LT(window, size);
  }
}

}  // namespace
}  // namespace adaptive_train::permutation_test
