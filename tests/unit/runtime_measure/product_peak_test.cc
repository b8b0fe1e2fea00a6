// The reference of MFU: positive, and never below what a step has reached.
#include "runtime/measure/product_peak.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::product_peak_test {
namespace {

TEST(MeasureProductPeak, IsPositiveAndPossible) {
  kernels::cpu::CpuDevice<float> device(1);
  const double peak = MeasureProductPeak(device);
  EXPECT_GT(peak, 1e6);
  EXPECT_LT(peak, 1e15);
}

TEST(RaisedPeak, FollowsStepsThatAreFasterAndStaysUp) {
  EXPECT_EQ(RaisedPeak(100, 50, 1), 100);
  EXPECT_EQ(RaisedPeak(100, 107, 1), 107);
  EXPECT_EQ(RaisedPeak(RaisedPeak(100, 107, 1), 10, 1), 107);
  EXPECT_EQ(RaisedPeak(100, 5, 0), 100) << "a step that took no time tells nothing";
}

}  // namespace
}  // namespace adaptive_train::product_peak_test
