#include "runtime/train/compression_control.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

const ModelDims kDims{2, 2, 64, 32, 256, true};

/// As a run that goes on from a checkpoint whose gate had found that compressing pays.
CompressionControl Resumed(CompressionMode mode, const ParameterLayout& layout,
                           const std::vector<int>& compressed_layers) {
  CompressionOrders orders;
  orders.mode = mode;
  CompressionControl control(orders, 3, layout, 2, compressed_layers);
  std::map<std::string, double> state = {{"gradient_s_min", orders.s_min},
                                         {"gradient_s_max", orders.s_max},
                                         {"gradient_variance_literal", 0},
                                         {"compression_pays", 1}};
  for (std::size_t layer = 0; layer < LayersOf(layout).size(); ++layer)
    state[fmt::format("gradient_density_{}", layer)] = 0.1 + 0.1 * static_cast<double>(layer);
  control.Restore(state);
  return control;
}

TEST(CompressionControl, AutoCompressesTheLayersOfThePlanAlone) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  const CompressionControl control = Resumed(CompressionMode::kAuto, layout, {1, 2});
  const ExchangePolicy policy = control.PolicyOf(5);
  EXPECT_EQ(policy.DensityOf(0), std::nullopt);
  EXPECT_DOUBLE_EQ(policy.DensityOf(1).value(), 0.2);
  EXPECT_DOUBLE_EQ(policy.DensityOf(2).value(), 0.3);
  EXPECT_EQ(policy.DensityOf(3), std::nullopt);
}

TEST(CompressionControl, AllAreTriedWhereThePlanNamesNone) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  const CompressionControl control = Resumed(CompressionMode::kAuto, layout, {});
  for (int layer = 0; layer < 4; ++layer)
    EXPECT_TRUE(control.PolicyOf(5).DensityOf(layer)) << layer;
}

TEST(CompressionControl, WhatIsAskedForIsNotThePlansToChange) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  const CompressionControl control = Resumed(CompressionMode::kVarianceTopk, layout, {1});
  for (int layer = 0; layer < 4; ++layer)
    EXPECT_TRUE(control.PolicyOf(5).DensityOf(layer)) << layer;
}

/// Densities found by one threshold for all layers are taken up where the same are asked for.
TEST(CompressionControl, OneThresholdsDensitiesHoldForThatDensityAlone) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  CompressionOrders orders;
  orders.mode = CompressionMode::kGlobalTopk;
  orders.density = 0.25;
  std::map<std::string, double> state = {{"gradient_global_density", 0.25}};
  for (std::size_t layer = 0; layer < LayersOf(layout).size(); ++layer)
    state[fmt::format("gradient_density_{}", layer)] = 0.1 + 0.1 * static_cast<double>(layer);
  CompressionControl control(orders, 3, layout, 2, {});
  EXPECT_TRUE(control.WantsGradients());
  control.Restore(state);
  EXPECT_FALSE(control.WantsGradients());
  EXPECT_DOUBLE_EQ(control.PolicyOf(5).DensityOf(2).value(), 0.3);
  EXPECT_EQ(control.State(), state);

  orders.density = 0.2;
  CompressionControl other(orders, 3, layout, 2, {});
  other.Restore(state);
  EXPECT_TRUE(other.WantsGradients());
  EXPECT_EQ(other.PolicyOf(5).DensityOf(2), std::nullopt);
  orders.mode = CompressionMode::kVarianceTopk;
  CompressionControl anew(orders, 3, layout, 2, {});
  anew.Restore(state);
  EXPECT_TRUE(anew.WantsGradients());
}

}  // namespace
}  // namespace adaptive_train
