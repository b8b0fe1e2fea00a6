#include "runtime/train/compression_control.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/model/layer_numbers.h"

namespace adaptive_train::compression_control_test {
namespace {

const ModelDims kDims{2, 2, 64, 32, 256, true};

/// As a checkpoint of a run in this mode, in which stages had not decided whether it pays.
std::map<std::string, double> Kept(const CompressionOrders& orders) {
  std::map<std::string, double> state = {{"gradient_s_min", orders.s_min},
                                         {"gradient_s_max", orders.s_max},
                                         {"gradient_variance_literal", 0}};
  for (int layer = 0; layer < 4; ++layer)
    state[fmt::format("gradient_density_{}", layer)] = 0.1 + 0.1 * layer;
  return state;
}

/// A rank of a stage with these layers, as a run that goes on from a checkpoint whose gate had found
/// that compressing pays.
CompressionControl Resumed(CompressionMode mode, const ParameterLayout& layout,
                           const std::vector<int>& compressed_layers) {
  CompressionOrders orders;
  orders.mode = mode;
  CompressionControl control(orders, 3, kDims, layout, 2, compressed_layers);
  std::map<std::string, double> state = Kept(orders);
  state["compression_pays"] = 1;
  control.Restore(state);
  return control;
}

const SumOfNumbers kAlone = [](std::span<double> /*numbers*/) {};

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

/// Nothing is to be found but whether it pays; what was decided for another kind of message says
/// nothing of this one.
TEST(CompressionControl, AutoSendsAllElementsInFourBits) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  CompressionOrders orders;
  orders.mode = CompressionMode::kAuto;
  orders.values = ValueEncoding::kInt4;
  CompressionControl control(orders, 3, kDims, layout, 2, {1, 2});
  EXPECT_FALSE(control.WantsGradients());
  EXPECT_TRUE(control.PolicyOf(1).density.empty()) << "it begins dense";
  std::map<std::string, double> by_variance = Kept(orders);
  by_variance["compression_pays"] = 1;
  control.Restore(by_variance);
  EXPECT_TRUE(control.PolicyOf(5).density.empty());

  std::map<std::string, double> state = {{"gradient_bits", 4}};
  EXPECT_EQ(control.State(true, kAlone), state);
  for (int layer = 0; layer < 4; ++layer) state[fmt::format("compression_pays_{}", layer)] = 1;
  control.Restore(state);
  EXPECT_EQ(control.PolicyOf(5).format, kernels::ValueFormat::kInt4);
  EXPECT_FALSE(control.PolicyOf(5).zstd);
  EXPECT_EQ(control.PolicyOf(5).DensityOf(0), std::nullopt) << "a layer that the plan leaves out";
  EXPECT_DOUBLE_EQ(control.PolicyOf(5).DensityOf(2).value(), 1);
  EXPECT_EQ(control.State(true, kAlone), state);

  CompressionOrders through_zstd = orders;
  through_zstd.zstd = true;
  EXPECT_TRUE(CompressionControl(through_zstd, 3, kDims, layout, 2, {}).PolicyOf(5).zstd);

  CompressionControl alone(orders, 3, kDims, layout, 1, {});
  alone.Restore(state);
  EXPECT_EQ(alone.State(true, kAlone), state) << "one replica hands on what was decided";
  orders.values = ValueEncoding::kBf16;
  CompressionControl sparse(orders, 3, kDims, layout, 2, {});
  sparse.Restore(state);
  EXPECT_TRUE(sparse.WantsGradients());
  EXPECT_TRUE(sparse.PolicyOf(5).density.empty());
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
  CompressionControl control(orders, 3, kDims, layout, 2, {});
  EXPECT_TRUE(control.WantsGradients());
  control.Restore(state);
  EXPECT_FALSE(control.WantsGradients());
  EXPECT_DOUBLE_EQ(control.PolicyOf(5).DensityOf(2).value(), 0.3);
  EXPECT_EQ(control.State(true, kAlone), state);

  orders.density = 0.2;
  CompressionControl other(orders, 3, kDims, layout, 2, {});
  other.Restore(state);
  EXPECT_TRUE(other.WantsGradients());
  EXPECT_EQ(other.PolicyOf(5).DensityOf(2), std::nullopt);
  orders.mode = CompressionMode::kVarianceTopk;
  CompressionControl anew(orders, 3, kDims, layout, 2, {});
  anew.Restore(state);
  EXPECT_TRUE(anew.WantsGradients());
}

/// Layers keep their numbers in the model, whatever stage has them.
TEST(CompressionControl, AStageCompressesItsOwnLayers) {
  const ParameterLayout last(kDims, StageSlice::OfLayers(kDims, 2, 4));
  EXPECT_EQ(LayerNumbersOf(last, kDims.layers), (std::vector<int>{0, 2, 3}));
  const CompressionControl control = Resumed(CompressionMode::kAuto, last.WithoutCopy(), {2});
  const ExchangePolicy policy = control.PolicyOf(5);
  EXPECT_EQ(policy.DensityOf(0), std::nullopt);
  EXPECT_DOUBLE_EQ(policy.DensityOf(1).value(), 0.3);
  EXPECT_EQ(policy.DensityOf(2), std::nullopt);
}

/// Stages that decided differently, told by the sum of all ranks.
TEST(CompressionControl, EachStagesDecisionIsKeptForItsLayers) {
  CompressionOrders orders;
  orders.mode = CompressionMode::kAuto;
  std::map<std::string, double> state = Kept(orders);
  for (int layer = 0; layer < 4; ++layer)
    state[fmt::format("compression_pays_{}", layer)] = layer < 2 ? 1 : 0;
  const auto stage = [&](int first, int end) {
    const ParameterLayout layout(kDims, StageSlice::OfLayers(kDims, first, end));
    return CompressionControl(orders, 3, kDims, layout.WithoutCopy(), 2, {});
  };
  CompressionControl front = stage(0, 2), back = stage(2, 4);
  EXPECT_EQ(front.Restore(state), std::nullopt);
  EXPECT_EQ(back.Restore(state), std::nullopt);
  EXPECT_TRUE(front.PolicyOf(5).DensityOf(1));
  EXPECT_FALSE(back.PolicyOf(5).DensityOf(1));
  std::vector<double> of_back;
  back.State(true, [&](std::span<double> own) { of_back.assign(own.begin(), own.end()); });
  const SumOfNumbers with_back = [&](std::span<double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += of_back[i];
  };
  EXPECT_EQ(front.State(true, with_back), state);
  EXPECT_NE(front.State(false, with_back), state) << "a rank that does not speak adds nothing";

  CompressionControl whole = stage(0, 4), other = stage(1, 3);
  const auto line = whole.Restore(state);
  ASSERT_TRUE(line);
  EXPECT_EQ(*line,
            "gradients: the checkpoint's stages compressed 2 of these 4 layers and not 2: whether "
            "compressing pays is tried again");
  EXPECT_TRUE(other.Restore(state));
  EXPECT_FALSE(whole.WantsGradients()) << "densities hold for any layout";
  EXPECT_EQ(whole.State(true, kAlone), Kept(orders));
}

/// A run of one replica neither compresses nor decides: what it found is there for the next one.
TEST(CompressionControl, OneReplicaHandsOnWhatWasDecided) {
  CompressionOrders orders;
  orders.mode = CompressionMode::kAuto;
  std::map<std::string, double> state = Kept(orders);
  for (int layer = 0; layer < 4; ++layer) state[fmt::format("compression_pays_{}", layer)] = 1;
  std::map<std::string, double> extra = state;
  extra["samples"] = 12;
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  CompressionControl alone(orders, 3, kDims, layout, 1, {});
  alone.Restore(extra);
  EXPECT_FALSE(alone.MayCompress());
  EXPECT_TRUE(alone.PolicyOf(5).density.empty());
  EXPECT_EQ(alone.State(true, kAlone), state);
}

}  // namespace
}  // namespace adaptive_train::compression_control_test
