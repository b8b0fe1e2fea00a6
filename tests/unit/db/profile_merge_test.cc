// A new figure is merged with an old one, or replaces it.
#include "db/profile_merge.h"

#include <gtest/gtest.h>

#include <cmath>

namespace adaptive_train::profile_merge_test {
namespace {

LinkMeasurement Link(double rate, Evidence evidence) { return {"a", "b", 1e-4, rate, evidence}; }

TEST(Contradicts, ByMoreThanThreeSpreadsAndMoreThanFigureMove) {
  EXPECT_FALSE(Contradicts(114, 100, 0));
  EXPECT_TRUE(Contradicts(116, 100, 0));
  EXPECT_TRUE(Contradicts(84, 100, 0.01));
  EXPECT_FALSE(Contradicts(129, 100, 0.1));
  EXPECT_TRUE(Contradicts(131, 100, 0.1));
}

TEST(Merged, FiguresThatAgreeAreAveragedByTheirCounts) {
  const LinkMeasurement merged =
      Merged(Link(100, {3, 0.0, 1000}), LinkMeasurement{"a", "b", 3e-4, 108, {1, 0.0, 2000}});
  EXPECT_DOUBLE_EQ(merged.bytes_per_second, 102);
  EXPECT_DOUBLE_EQ(merged.latency_s, 1.5e-4);
  EXPECT_EQ(merged.evidence.count, 4);
  EXPECT_EQ(merged.evidence.measured_at, 2000);
  // Three at 100 and one at 108 around 102: the root of (3*4 + 36) / 4, relative.
  EXPECT_NEAR(merged.evidence.spread, std::sqrt(12.0) / 102, 1e-12);
}

TEST(Merged, AContradictionTakesThePlaceOfWhatWasKnown) {
  const LinkMeasurement merged = Merged(Link(100, {9, 0.02, 1000}), Link(50, {1, 0.01, 2000}));
  EXPECT_EQ(merged.bytes_per_second, 50);
  EXPECT_EQ(merged.evidence.count, 1);
  EXPECT_EQ(merged.evidence.spread, 0.01);
}

TEST(Merged, TheMeanKeepsMovingHoweverManyWentIntoIt) {
  const LinkMeasurement merged = Merged(Link(100, {1000, 0.02, 1}), Link(110, {1, 0, 2}));
  EXPECT_EQ(merged.evidence.count, kMostCount);
  EXPECT_NEAR(merged.bytes_per_second, 100 + 10.0 / 21, 1e-9);
}

TEST(Merged, ALayerIsJudgedByItsTimeAndKeepsWhatOnlyOneSideKnows) {
  LayerMeasurement known{"cpu", "m", "block", 2, 1.0, 2.0, 0.8, 0.5, 0, {1, 0, 1}};
  LayerMeasurement fresh{"cpu", "m", "block", 2, 1.1, 2.1, 1.0, 0, 0.25, {1, 0, 2}};
  const LayerMeasurement merged = Merged(known, fresh);
  EXPECT_DOUBLE_EQ(merged.forward_s, 1.05);
  EXPECT_DOUBLE_EQ(merged.weight_gradients_s, 0.9);
  EXPECT_DOUBLE_EQ(merged.update_s, 0.5);
  EXPECT_DOUBLE_EQ(merged.gradient_variance, 0.25);
  fresh.backward_s = 3;
  EXPECT_DOUBLE_EQ(Merged(known, fresh).backward_s, 3);
}

TEST(Merged, ADeviceIsJudgedByItsProduct) {
  const DeviceMeasurement known{"n1", "cpu", 100, 10, {2, 0, 1}};
  EXPECT_DOUBLE_EQ(Merged(known, {"n1", "cpu", 106, 13, {1, 0, 2}}).product_flops, 102);
  EXPECT_DOUBLE_EQ(Merged(known, {"n1", "cpu", 106, 13, {1, 0, 2}}).bytes_per_second, 11);
  EXPECT_DOUBLE_EQ(Merged(known, {"n1", "cpu", 50, 10, {1, 0, 2}}).product_flops, 50);
}

TEST(Merged, TransfersThatWereNotMeasuredDoNotCount) {
  const DeviceMeasurement known{"n1", "cpu", 100, 10, {2, 0, 1}, 3e-9};
  EXPECT_DOUBLE_EQ(Merged(known, {"n1", "cpu", 100, 10, {1, 0, 2}}).transfer_s_per_byte, 3e-9);
  EXPECT_DOUBLE_EQ(Merged(known, {"n1", "cpu", 100, 10, {1, 0, 2}, 6e-9}).transfer_s_per_byte,
                   4e-9);
}

TEST(Merged, AFigureThatWaversContradictsNothing) {
  const DeviceMeasurement known{"n1", "cpu", 100, 10, {4, 0.02, 1}};
  const DeviceMeasurement merged = Merged(known, {"n1", "cpu", 50, 10, {1, 0.4, 2}});
  EXPECT_DOUBLE_EQ(merged.product_flops, 90);
  EXPECT_EQ(merged.evidence.count, 5);
  EXPECT_GT(merged.evidence.spread, 0.2);
  const LayerMeasurement layer{"cpu", "m", "block", 2, 1.0, 2.0, 0.8, 0.5, 0, {4, 0.02, 1}};
  LayerMeasurement slow = layer;
  slow.forward_s = 3, slow.backward_s = 6, slow.evidence = {1, 0.9, 2};
  EXPECT_DOUBLE_EQ(Merged(layer, slow).forward_s, 1.4);
}

TEST(Joined, TwoMeasurementsOfOneJobThatDifferMakeAWideSpread) {
  const DeviceMeasurement joined =
      Joined({"n1", "cpu", 12, 10, {1, 0, 1}}, {"n1", "cpu", 4, 10, {1, 0, 2}});
  EXPECT_DOUBLE_EQ(joined.product_flops, 8);
  EXPECT_DOUBLE_EQ(joined.evidence.spread, 0.5);
  EXPECT_EQ(joined.evidence.count, 2);
  EXPECT_EQ(joined.evidence.measured_at, 2);
}

}  // namespace
}  // namespace adaptive_train::profile_merge_test
