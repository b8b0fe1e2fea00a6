#include "runtime/measure/congestion.h"

#include <gtest/gtest.h>

#include <vector>

namespace adaptive_train::congestion_test {
namespace {

RateInCompany Rate(int from, int to, double bytes_per_second, int pairs = 2) {
  return {from, to, bytes_per_second, 0.02, 0, pairs};
}

TEST(WorthMeasuringAlone, WhatFallsFurthestShortOfWhatItsEndsCanDo) {
  // Two islands of fast links; what is between them crosses an uplink.
  const std::vector<RateInCompany> rates = {Rate(0, 1, 100), Rate(2, 3, 110), Rate(0, 2, 30),
                                            Rate(1, 3, 25)};
  const auto chosen = WorthMeasuringAlone(rates);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->from, 1);
  EXPECT_EQ(chosen->to, 3);
}

TEST(WorthMeasuringAlone, ASlowNodesLinksAreItsOwn) {
  const std::vector<RateInCompany> rates = {Rate(0, 1, 100), Rate(2, 3, 12), Rate(0, 2, 100),
                                            Rate(1, 3, 12)};
  EXPECT_FALSE(WorthMeasuringAlone(rates));
}

TEST(WorthMeasuringAlone, WithoutCompanyNothing) {
  EXPECT_FALSE(WorthMeasuringAlone({}));
  const std::vector<RateInCompany> rates = {Rate(0, 1, 100, 1), Rate(0, 2, 10, 1)};
  EXPECT_FALSE(WorthMeasuringAlone(rates));
}

TEST(HeldUp, MoreThanNoiseExplains) {
  EXPECT_FALSE(HeldUp(Rate(0, 1, 100), 100, 0.02));
  EXPECT_FALSE(HeldUp(Rate(0, 1, 100), 124, 0.02));
  EXPECT_TRUE(HeldUp(Rate(0, 1, 100), 130, 0.02));
  EXPECT_FALSE(HeldUp(Rate(0, 1, 100), 130, 0.2));
  EXPECT_FALSE(HeldUp(Rate(0, 1, 100), 50, 0.02));
}

}  // namespace
}  // namespace adaptive_train::congestion_test
