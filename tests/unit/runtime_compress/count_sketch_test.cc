// Count sketches survive a round trip; how often one of the chosen size cannot be peeled.
#include "runtime/compress/count_sketch.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <random>
#include <set>

namespace adaptive_train::count_sketch_test {
namespace {

std::vector<std::int32_t> RandomNumbers(std::size_t keys, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<std::int32_t> numbers(keys);
  for (auto& number : numbers) number = static_cast<std::int32_t>(engine());
  return numbers;
}

/// A seed whose graph of `keys` keys can be peeled, or cannot.
std::uint64_t SeedOf(std::size_t keys, bool peels) {
  std::uint64_t seed = 0;
  while (CountSketch(keys, seed).peels() != peels) ++seed;
  return seed;
}

TEST(CountSketch, NoKeysHaveNoCells) {
  const CountSketch sketch(0, 1);
  EXPECT_TRUE(sketch.peels());
  EXPECT_EQ(sketch.cells(), 0u);
  std::vector<std::uint32_t> cells = sketch.Encode({});
  EXPECT_TRUE(sketch.Decode(cells, {}));
}

TEST(CountSketch, NumbersComeBack) {
  for (std::size_t keys : {1u, 2u, 3u, 10u, 97u, 1000u, 65537u, 1'000'000u}) {
    const CountSketch sketch(keys, SeedOf(keys, true));
    ASSERT_EQ(sketch.keys(), keys);
    ASSERT_EQ(sketch.cells(), CountSketch::CellsFor(keys));
    const auto numbers = RandomNumbers(keys, keys);
    std::vector<std::uint32_t> cells = sketch.Encode(numbers);
    ASSERT_EQ(cells.size(), sketch.cells());
    std::vector<std::int32_t> out(keys, -1);
    EXPECT_TRUE(sketch.Decode(cells, out)) << keys;
    EXPECT_TRUE(out == numbers) << keys;
  }
}

TEST(CountSketch, TheSumOfSketchesIsTheSketchOfTheSumsInEveryOrder) {
  constexpr std::size_t kKeys = 5003;
  const CountSketch sketch(kKeys, SeedOf(kKeys, true));
  std::vector<std::uint32_t> sum(sketch.cells());
  std::vector<std::int32_t> expected(kKeys);
  for (std::uint64_t rank = 0; rank < 16; ++rank) {
    auto numbers = RandomNumbers(kKeys, rank);
    for (std::size_t i = 0; i < kKeys; ++i) {
      numbers[i] /= 16;
      expected[i] += numbers[i];
    }
    const auto cells = sketch.Encode(numbers);
    for (std::size_t i = 0; i < cells.size(); ++i) sum[i] += cells[i];
  }
  std::vector<std::int32_t> out(kKeys);
  EXPECT_TRUE(sketch.Decode(sum, out));
  EXPECT_TRUE(out == expected);
}

TEST(CountSketch, CellsThatAreNoSketchOfTheGraphAreNoticed) {
  constexpr std::size_t kKeys = 1000;
  const std::uint64_t seed = SeedOf(kKeys, true);
  const CountSketch sketch(kKeys, seed);
  const auto numbers = RandomNumbers(kKeys, 1);
  std::vector<std::int32_t> out(kKeys);
  auto cells = sketch.Encode(numbers);
  cells[17] ^= 1;
  EXPECT_FALSE(sketch.Decode(cells, out));
  cells = CountSketch(kKeys, seed + 1).Encode(numbers);
  EXPECT_FALSE(sketch.Decode(cells, out));
}

TEST(CountSketch, EachKeyHasOneCellInEachThird) {
  constexpr std::size_t kKeys = 3;
  const CountSketch sketch(kKeys, 5);
  const std::size_t third = sketch.cells() / 3;
  for (std::size_t key = 0; key < kKeys; ++key) {
    std::vector<std::int32_t> numbers(kKeys);
    numbers[key] = 1;
    const auto cells = sketch.Encode(numbers);
    for (std::size_t part = 0; part < 3; ++part) {
      const auto begin = cells.begin() + static_cast<std::ptrdiff_t>(part * third);
      EXPECT_EQ(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(third), 0u), 1u);
    }
  }
}

TEST(CountSketch, AGraphThatCannotBePeeledIsDetectedAndTheNextStepHasAnother) {
  constexpr std::size_t kKeys = 300;
  const CountSketch failed(kKeys, SeedOf(kKeys, false));
  EXPECT_FALSE(failed.peels());
  std::int64_t step = 0;
  while (CountSketch(kKeys, SketchSeed(7, step)).peels()) ++step;
  EXPECT_TRUE(CountSketch(kKeys, SketchSeed(7, step + 1)).peels());
  EXPECT_TRUE(CountSketch(kKeys, SketchSeed(8, step)).peels());
}

TEST(CountSketch, SeedsOfBucketsAndStepsDiffer) {
  std::set<std::uint64_t> seeds;
  for (std::uint32_t bucket = 0; bucket < 100; ++bucket) {
    for (std::int64_t step = 0; step < 100; ++step) seeds.insert(SketchSeed(bucket, step));
  }
  EXPECT_EQ(seeds.size(), 10'000u);
}

// The sizes that CellsFor gives.

struct Trial {
  std::size_t keys;
  int graphs;
};

class Sizes : public testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Keys, Sizes,
                         testing::Values(Trial{2, 20'000}, Trial{10, 20'000}, Trial{100, 20'000},
                                         Trial{1000, 10'000}, Trial{5000, 1000},
                                         Trial{14'000, 1000}, Trial{30'000, 300},
                                         Trial{100'000, 100}, Trial{1'000'000, 5}));

TEST_P(Sizes, FewerThanOneGraphInAThousandCannotBePeeled) {
  constexpr std::uint64_t kSeed = 20'250'331;
  const auto [keys, graphs] = GetParam();
  int failed = 0;
  for (int i = 0; i < graphs; ++i)
    failed +=
        CountSketch(keys, SketchSeed(static_cast<std::uint32_t>(keys), kSeed + i)).peels() ? 0 : 1;
  const auto cells = static_cast<double>(CountSketch::CellsFor(keys));
  std::printf("seed %llu: %zu keys, %.3f cells each: %d of %d graphs failed\n",
              static_cast<unsigned long long>(kSeed), keys, cells / static_cast<double>(keys),
              failed, graphs);
  EXPECT_LT(failed, graphs / 1000 + (graphs < 1000 ? 1 : 0));
}

}  // namespace
}  // namespace adaptive_train::count_sketch_test
