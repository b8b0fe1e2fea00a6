// The device's figures are figures.
#include "runtime/measure/device_speed.h"

#include <gtest/gtest.h>

namespace adaptive_train {
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

}  // namespace
}  // namespace adaptive_train
