#include "runtime/exchange/sparsity.h"

#include <gtest/gtest.h>

namespace adaptive_train {
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

TEST(DensitiesOf, NoLayersNoDensities) { EXPECT_TRUE(DensitiesOf({}, {}).empty()); }

}  // namespace
}  // namespace adaptive_train
