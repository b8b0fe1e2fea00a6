#include "runtime/exchange/sparsity.h"

#include <gtest/gtest.h>

#include <span>

namespace adaptive_train::sparsity_test {
namespace {

TEST(DensitiesOf, TheSteadiestLayerIsSparsestAndTheMostChangingDensest) {
  const double variances[] = {2.0, 1.0, 1.5};
  const auto densities = DensitiesOf(variances, {0.7, 0.95});
  ASSERT_EQ(densities.size(), 3u);
  EXPECT_NEAR(densities[0], 0.30, 1e-12);
  EXPECT_NEAR(densities[1], 0.05, 1e-12);
  EXPECT_NEAR(densities[2], 0.175, 1e-12);
}

TEST(DensitiesOf, LayersThatChangeAlikeAllGetTheMost) {
  const double variances[] = {0.4, 0.4};
  for (const double density : DensitiesOf(variances, {0.7, 0.95})) EXPECT_NEAR(density, 0.3, 1e-12);
}

TEST(DensitiesOf, OneSparsityForAllIsARangeOfNoWidth) {
  const double variances[] = {1.0, 3.0, 2.0};
  for (const double density : DensitiesOf(variances, {0.9, 0.9})) EXPECT_NEAR(density, 0.1, 1e-12);
}

TEST(DensitiesAboveThreshold, LayersOfLargeElementsSendMore) {
  const double small[] = {50, 40, 10, 0}, large[] = {10, 20, 40, 30};
  const std::span<const double> layers[] = {small, large};
  // Of 200 elements the largest 80: classes 3 and 2 in whole.
  const auto densities = DensitiesAboveThreshold(layers, 0.4);
  ASSERT_EQ(densities.size(), 2u);
  EXPECT_NEAR(densities[0], 0.1, 1e-12);
  EXPECT_NEAR(densities[1], 0.7, 1e-12);
}

TEST(DensitiesAboveThreshold, AThresholdWithinAClassTakesTheSameShareOfEveryLayer) {
  const double small[] = {0, 30, 10}, large[] = {0, 10, 50};
  const std::span<const double> layers[] = {small, large};
  // Of 100 elements 80: class 2, and half of class 1.
  const auto densities = DensitiesAboveThreshold(layers, 0.8);
  EXPECT_NEAR(densities[0], 25.0 / 40, 1e-12);
  EXPECT_NEAR(densities[1], 55.0 / 60, 1e-12);
}

TEST(DensitiesAboveThreshold, ALayerThatIsAboveTheThresholdIsWholeHoweverSumsAreRounded) {
  const double small[] = {1000, 0, 0, 0}, large[] = {0, 0.1, 0.2, 0.3};
  const std::span<const double> layers[] = {small, large};
  EXPECT_EQ(DensitiesAboveThreshold(layers, 0.5)[1], 1);
}

TEST(DensitiesAboveThreshold, NoLayerSendsNothing) {
  const double small[] = {100, 0}, large[] = {0, 100}, empty[] = {0, 0};
  const std::span<const double> layers[] = {small, large, empty};
  const auto densities = DensitiesAboveThreshold(layers, 0.2);
  EXPECT_NEAR(densities[0], 0.02, 1e-12);
  EXPECT_NEAR(densities[1], 0.4, 1e-12);
  EXPECT_NEAR(densities[2], 0.02, 1e-12);
}

TEST(DensitiesAboveThreshold, DensityOneIsEverythingAndNoLayersNoDensities) {
  const double one[] = {0.1, 0.2, 0.3}, other[] = {0, 0, 0.7};
  const std::span<const double> layers[] = {one, other};
  EXPECT_EQ(DensitiesAboveThreshold(layers, 1), (std::vector<double>{1, 1}));
  EXPECT_TRUE(DensitiesAboveThreshold({}, 0.5).empty());
}

TEST(DensitiesOf, NoLayersNoDensities) { EXPECT_TRUE(DensitiesOf({}, {}).empty()); }

}  // namespace
}  // namespace adaptive_train::sparsity_test
