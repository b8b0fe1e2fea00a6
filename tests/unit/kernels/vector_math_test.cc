// The processor's exponential and lane sums against the standard library.
#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace adaptive_train::kernels::cpu {
namespace {

TEST(VectorMath, ExpIsWithinTwoUnitsInTheLastPlace) {
  for (double x = -87; x <= 88; x += 0.00137) {
    const auto rounded = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(rounded));
    EXPECT_LE(std::abs(Exp(rounded) - expected),
              2 * expected * std::numeric_limits<float>::epsilon())
        << rounded;
  }
  EXPECT_EQ(1.0F, Exp(0.0F));
}

TEST(VectorMath, ExpBeyondItsRange) {
  EXPECT_EQ(Exp(-87.0F), Exp(-1000.0F));
  EXPECT_EQ(Exp(88.0F), Exp(std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, LaneSumsAndMaximaSeeEveryElementOnce) {
  for (std::int64_t count = 1; count < 70; ++count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(-i - 1);
    const auto at = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
    EXPECT_EQ(static_cast<float>(-count * (count + 1) / 2), SumOf(count, at));
    EXPECT_EQ(-1.0F, LargestOf(count, values.data()));
    values.back() = 5;
    EXPECT_EQ(5.0F, LargestOf(count, values.data()));
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu
