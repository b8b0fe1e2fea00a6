// Slopes of arrivals, best quartiles, and the combination of two measurements that differ.
#include "runtime/measure/link_statistics.h"

#include <gtest/gtest.h>

namespace adaptive_train::link_statistics_test {
namespace {

std::vector<Arrival> Steady(double rate, int count) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < count; ++i) arrivals.push_back({5 + 0.01 * i, 1e6 + rate * 0.01 * i});
  return arrivals;
}

TEST(LinkSlope, OfASteadyStreamIsItsRateWithoutSpread) {
  const LinkSlope slope = SlopeOf(Steady(6.25e6, 20));
  EXPECT_NEAR(slope.bytes_per_second, 6.25e6, 1);
  EXPECT_NEAR(slope.spread, 0, 1e-6);
}

TEST(LinkSlope, ArrivalsSeenLateMoveItLittle) {
  std::vector<Arrival> arrivals = Steady(6.25e6, 40);
  // A receiver that was asleep sees four chunks at once.
  for (std::size_t i = 12; i < 16; ++i) arrivals[i].seconds = arrivals[15].seconds;
  EXPECT_NEAR(SlopeOf(arrivals).bytes_per_second, 6.25e6, 0.03 * 6.25e6);
}

TEST(LinkSlope, AStreamThatHalvesItsRateShowsASpread) {
  std::vector<Arrival> arrivals;
  double bytes = 0;
  for (int i = 0; i < 40; ++i) arrivals.push_back({0.01 * i, bytes += i < 20 ? 2e4 : 1e4});
  EXPECT_GT(SlopeOf(arrivals).spread, 0.3);
}

TEST(LinkSlope, TwoArrivalsAreEnough) {
  const LinkSlope slope = SlopeOf(std::vector<Arrival>{{0, 0}, {2, 10}});
  EXPECT_DOUBLE_EQ(slope.bytes_per_second, 5);
  EXPECT_EQ(slope.spread, 0);
}

TEST(BestQuartile, IsTheMeanOfTheFastest) {
  EXPECT_DOUBLE_EQ(BestQuartile({9, 1, 8, 3, 7, 6, 5, 4}), 2);
  EXPECT_DOUBLE_EQ(BestQuartile({7}), 7);
  EXPECT_DOUBLE_EQ(BestQuartile({7, 5, 6}), 5);
}

TEST(Reconciled, WhatAgreesIsAveraged) {
  const LinkSlope both = Reconciled({100, 0.3}, {104, 0.02}, 0.1);
  EXPECT_DOUBLE_EQ(both.bytes_per_second, 102);
  EXPECT_DOUBLE_EQ(both.spread, 0.02);
}

TEST(Reconciled, OfTwoThatDifferTheSteadierCountsAndTheDifferenceIsTold) {
  const LinkSlope both = Reconciled({50, 0.4}, {100, 0.05}, 0.1);
  EXPECT_DOUBLE_EQ(both.bytes_per_second, 100);
  EXPECT_DOUBLE_EQ(both.spread, 0.5);
}

}  // namespace
}  // namespace adaptive_train::link_statistics_test
