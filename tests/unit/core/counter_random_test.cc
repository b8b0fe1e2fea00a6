// Philox against its published known answers; distributions and independence of the numbers built
// on it.
#include "core/counter_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

namespace adaptive_train::counter_random_test {
namespace {

// The known answers of Random123, the library of Philox's authors, for philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ((PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}),
            Philox4x32({0, 0, 0, 0}, {0, 0}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ((PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}),
            Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}));
  EXPECT_EQ((PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}),
            Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}));
}

TEST(CounterRandom, EveryFieldOfThePlaceMatters) {
  const CounterRandom random(1, RandomPurpose::kDropout);
  const std::vector<RandomPlace> places{{},
                                        {.step = 1},
                                        {.sample = 1},
                                        {.layer = 1},
                                        {.element = 1},
                                        {.element = 4},
                                        {.element = std::uint64_t{1} << 34},
                                        {.element = std::uint64_t{1} << 49}};
  std::set<std::uint32_t> seen;
  for (const RandomPlace& place : places) seen.insert(random.Bits(place));
  EXPECT_EQ(places.size(), seen.size());
  EXPECT_EQ(random.Bits({}), CounterRandom(1, RandomPurpose::kDropout).Bits({}));
  EXPECT_NE(random.Bits({}), CounterRandom(2, RandomPurpose::kDropout).Bits({}));
  EXPECT_NE(random.Bits({}),
            CounterRandom(1 + (std::uint64_t{1} << 32), RandomPurpose::kDropout).Bits({}));
  EXPECT_NE(random.Bits({}), CounterRandom(1, RandomPurpose::kRounding).Bits({}));
}

TEST(CounterRandom, NormalsComeFourAtATimeOrOneByOne) {
  const CounterRandom random(3, RandomPurpose::kInitialization);
  const RandomPlace place{.step = 5, .sample = 6, .layer = 7};
  for (std::uint64_t element = 0; element < 40; ++element) {
    EXPECT_EQ(random.Normals(place, element / 4)[element % 4],
              random.Normal({.step = 5, .sample = 6, .layer = 7, .element = element}));
  }
}

TEST(CounterRandom, UniformIsUniformInItsHalfOpenRange) {
  const CounterRandom random(4, RandomPurpose::kDropout);
  constexpr int kCount = 200000, kBins = 50;
  std::vector<int> bins(kBins);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const float value = random.Uniform({.element = i});
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    ++bins[static_cast<std::size_t>(value * kBins)];
  }
  double chi_squared = 0;
  for (const int bin : bins) chi_squared += std::pow(bin - kCount / kBins, 2) / (kCount / kBins);
  EXPECT_LT(chi_squared, 100);  // 49 degrees of freedom: 85 is exceeded once in a thousand seeds,
                                // and the seed is fixed
}

double NormalDistribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

TEST(CounterRandom, NormalIsNormal) {
  const CounterRandom random(5, RandomPurpose::kInitialization);
  constexpr std::size_t kCount = 200000;
  std::vector<double> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = random.Normal({.element = i});
  std::sort(values.begin(), values.end());
  double farthest = 0;  // Kolmogorov and Smirnov
  for (std::size_t i = 0; i < kCount; ++i) {
    farthest = std::max(farthest, std::abs(NormalDistribution(values[i]) -
                                           (static_cast<double>(i) + 0.5) / kCount));
  }
  EXPECT_LT(farthest, 1.63 / std::sqrt(kCount));
  EXPECT_GT(values.back(), 4.0);
  EXPECT_LT(values.back(), 6.7);
  EXPECT_LT(values.front(), -4.0);
}

TEST(CounterRandom, NeighboursAreUncorrelated) {
  const CounterRandom random(6, RandomPurpose::kInitialization);
  constexpr std::uint64_t kCount = 100000;
  for (const std::uint64_t distance : {1, 2, 3, 4}) {
    double product = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      product += random.Normal({.element = i}) * random.Normal({.element = i + distance});
    }
    EXPECT_LT(std::abs(product / kCount), 4 / std::sqrt(kCount)) << distance;
  }
}

// Compares bits, to notice a change of arithmetic that would give machines different initial
// weights.
TEST(CounterRandom, NormalsHaveTheseBits) {
  const CounterRandom random(1337, RandomPurpose::kInitialization);
  EXPECT_EQ(
      (std::array<float, 4>{-0x1.4a1314p-1F, 0x1.4a452ap-1F, -0x1.751a5ap+0F, -0x1.fb3d02p-2F}),
      random.Normals({}, 0));
}

}  // namespace
}  // namespace adaptive_train::counter_random_test
