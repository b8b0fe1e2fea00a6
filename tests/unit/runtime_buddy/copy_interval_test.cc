// Copies are as frequent as their cost allows.
#include "runtime/buddy/copy_interval.h"

#include <gtest/gtest.h>

namespace adaptive_train::copy_interval_test {
namespace {

/// Steps up to the next copy, which takes `copy_s`. Decides where it is due, by the rank's own costs.
int ToNextCopy(CopyInterval& interval, double step_s, double copy_s, bool* changed = nullptr) {
  int steps = 1;
  while (!interval.AfterStep(step_s)) ++steps;
  if (interval.AfterCopy(copy_s)) {
    const bool changes = interval.Decide(interval.Costs());
    if (changed != nullptr) *changed = changes;
  }
  return steps;
}

TEST(CopyInterval, TheFirstCopiesAreMeasuredAndThenTheShareIsKept) {
  CopyInterval interval(0);
  for (int copy = 0; copy < 2; ++copy)
    EXPECT_EQ(ToNextCopy(interval, 1, 0.9), 1);  // makes its slot: not counted
  for (int copy = 0; copy < 4; ++copy) EXPECT_EQ(ToNextCopy(interval, 1, 0.1), 1);
  EXPECT_EQ(interval.every(), 5);  // 0.1 s are 3 % of 3.3 s; with room
  EXPECT_EQ(ToNextCopy(interval, 1, 0.1), 5);
}

TEST(CopyInterval, ADearFirstCopyIsNotRepeatedToBeMeasured) {
  CopyInterval interval(0);
  bool changed = false;
  EXPECT_EQ(ToNextCopy(interval, 3, 18, &changed), 1);
  EXPECT_TRUE(changed);
  EXPECT_EQ(interval.every(), 300);  // 18 s are 3 % of 600 s; with room
  EXPECT_EQ(ToNextCopy(interval, 3, 18, &changed), 300);
  // Making slots was what took so long: the third has not to.
  EXPECT_EQ(ToNextCopy(interval, 3, 1.8, &changed), 300);
  EXPECT_TRUE(changed);
  EXPECT_EQ(interval.every(), 30);
}

TEST(CopyInterval, CheapCopiesAreMadeInEveryStep) {
  CopyInterval interval(0);
  for (int copy = 0; copy < 300; ++copy) EXPECT_EQ(ToNextCopy(interval, 1, 0.02), 1);
}

TEST(CopyInterval, LaterMeasurementsChangeItAndNoiseDoesNot) {
  CopyInterval interval(0);
  bool changed = false;
  for (int copy = 0; copy < 6; ++copy) ToNextCopy(interval, 1, 0.299, &changed);
  EXPECT_TRUE(changed);
  EXPECT_EQ(interval.every(), 15);
  for (int copy = 0; copy < 6; ++copy) ToNextCopy(interval, 1, 0.44, &changed);
  EXPECT_FALSE(changed);
  for (int copy = 0; copy < 12; ++copy) ToNextCopy(interval, 1, 0.2, &changed);
  EXPECT_FALSE(changed);
  EXPECT_EQ(interval.every(), 15);
  for (int copy = 0; copy < 24; ++copy) ToNextCopy(interval, 1, 0.119, &changed);
  EXPECT_TRUE(changed);
  EXPECT_EQ(interval.every(), 6);
  for (int copy = 0; copy < 48; ++copy) ToNextCopy(interval, 1, 0.26, &changed);
  EXPECT_TRUE(changed);
  EXPECT_EQ(interval.every(), 13);
}

TEST(CopyInterval, AFixedDistanceStaysAfterTheFirstStep) {
  CopyInterval interval(7);
  EXPECT_EQ(ToNextCopy(interval, 1, 5), 1);
  for (int copy = 0; copy < 9; ++copy) EXPECT_EQ(ToNextCopy(interval, 1, 5), 7);
  EXPECT_EQ(interval.every(), 7);
}

}  // namespace
}  // namespace adaptive_train::copy_interval_test
