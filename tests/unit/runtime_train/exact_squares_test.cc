// Squares are added exactly: no order, cut or number of ranks changes a bit.
#include "runtime/train/exact_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace adaptive_train::exact_squares_test {
namespace {

/// Of ranks that have some of the numbers each, up to these places.
double SumOf(std::span<const float> numbers, const std::vector<std::size_t>& cuts = {}) {
  std::vector<double> all;
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank <= cuts.size(); ++rank) {
    const std::size_t end = rank < cuts.size() ? cuts[rank] : numbers.size();
    ExactSquares squares;
    squares.Add(numbers.subspan(begin, end - begin));
    const std::vector<double> summands = squares.Summands();
    all.resize(summands.size());
    std::ranges::transform(summands, all, all.begin(), std::plus());
    begin = end;
  }
  return ExactSquares::SumOf(all);
}

std::vector<float> Numbers(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random) * std::exp2(10 * normal(random));
  return numbers;
}

TEST(ExactSquares, AnyOrderAndAnyCutGiveTheSameBits) {
  std::vector<float> numbers = Numbers(600'000);
  const double sum = SumOf(numbers);
  EXPECT_EQ(SumOf(numbers, {1, 2, 300'000, 300'001}), sum);
  EXPECT_EQ(SumOf(numbers, {599'999}), sum);
  std::ranges::shuffle(numbers, std::mt19937(1));
  EXPECT_EQ(SumOf(numbers), sum);
  EXPECT_EQ(SumOf(numbers, {77}), sum);
}

TEST(ExactSquares, AgreesWithASumInDouble) {
  const std::vector<float> numbers = Numbers(100'000);
  const double sum =
      std::accumulate(numbers.begin(), numbers.end(), 0.0,
                      [](double so_far, float x) { return so_far + static_cast<double>(x) * x; });
  EXPECT_NEAR(SumOf(numbers) / sum, 1, 1e-13);
}

TEST(ExactSquares, ReachesFromTheLeastNumberToTheLargest) {
  const float least = std::numeric_limits<float>::denorm_min(),
              largest = std::numeric_limits<float>::max();
  EXPECT_EQ(SumOf({}), 0);
  EXPECT_EQ(SumOf(std::vector<float>{0, -0.0f}), 0);
  EXPECT_EQ(SumOf(std::vector<float>{-3, 4}), 25);
  EXPECT_EQ(SumOf(std::vector<float>{least}), static_cast<double>(least) * least);
  EXPECT_EQ(SumOf(std::vector<float>{largest}), static_cast<double>(largest) * largest);
  const float normal = std::numeric_limits<float>::min();
  EXPECT_EQ(SumOf(std::vector<float>{normal}), static_cast<double>(normal) * normal);
}

TEST(ExactSquares, IsInfiniteWhereANumberIsNotFinite) {
  for (const float odd :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(SumOf(std::vector<float>{1, odd, 2}), std::numeric_limits<double>::infinity());
}

TEST(ExactSquares, ManySquaresOfOneExponentDoNotOverflow) {
  const std::vector<float> numbers(3'000'000, std::nextafter(2.0f, 1.0f));
  EXPECT_DOUBLE_EQ(SumOf(numbers), 3e6 * static_cast<double>(numbers[0]) * numbers[0]);
}

}  // namespace
}  // namespace adaptive_train::exact_squares_test
