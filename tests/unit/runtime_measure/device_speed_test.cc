// The device's figures are finite and positive.
#include "runtime/measure/device_speed.h"

#include <gtest/gtest.h>

#include <cmath>

namespace adaptive_train::device_speed_test {
namespace {

TEST(DeviceSpeed, AllFiguresArePositiveAndPossible) {
  for (int threads : {1, 2}) {
    const DeviceSpeed speed = MeasureDevice(threads, 0.05);
    EXPECT_GT(speed.product_flops, 1e6);
    EXPECT_LT(speed.product_flops, 1e15);
    EXPECT_GT(speed.bytes_per_second, 1e6);
    EXPECT_GE(speed.product_spread, 0);
    EXPECT_GT(speed.handover_s, 0);
    EXPECT_LT(speed.handover_s, 1);
  }
}

TEST(RepeatedRateOf, IsTheMedianWithTheSpreadBetweenThem) {
  const RepeatedRate rate = RepeatedRateOf({9, 10, 11, 2, 10});
  EXPECT_EQ(rate.median, 10);
  // Around their mean of 8.4: the root of (.36 + 2.56 + 6.76 + 40.96 + 2.56) / 4.
  EXPECT_NEAR(rate.spread, std::sqrt(53.2 / 4) / 10, 1e-12);
  EXPECT_EQ(RepeatedRateOf({5}).median, 5);
  EXPECT_EQ(RepeatedRateOf({5}).spread, 0);
  EXPECT_EQ(RepeatedRateOf({}).median, 0);
}

}  // namespace
}  // namespace adaptive_train::device_speed_test
