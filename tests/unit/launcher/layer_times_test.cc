// Lines through measured layers, and which part of backward is a second half's.
#include "launcher/planner/layer_times.h"

#include <gtest/gtest.h>

namespace adaptive_train::layer_times_test {
namespace {

constexpr ModelDims kDims{.layers = 2, .heads = 2, .hidden = 16, .sequence = 8, .vocab = 20};

LayerMeasurement Entry(const char* layer, std::int64_t micro_batch, double backward_s,
                       double weight_gradients_s) {
  LayerMeasurement entry;
  entry.device_kind = "cpu";
  entry.model = "model";
  entry.layer = layer;
  entry.micro_batch = micro_batch;
  entry.forward_s = backward_s / 2;
  entry.backward_s = backward_s;
  entry.weight_gradients_s = weight_gradients_s;
  entry.evidence = {8, 0.01, 1e9};
  return entry;
}

/// Embedding and head besides the blocks.
std::vector<LayerSeconds> SecondsWith(std::vector<LayerMeasurement> blocks) {
  Profile profile;
  profile.layers = std::move(blocks);
  profile.layers.push_back(Entry("embedding", 1, 1, 0));
  profile.layers.push_back(Entry("head", 1, 3, 0));
  const auto found = MeasuredLayers(ModelShape::Of(kDims), profile, "cpu", "model");
  return found ? found->seconds : std::vector<LayerSeconds>();
}

TEST(MeasuredLayers, WeightGradientsAreOfTheBlocksAsMeasured) {
  const auto seconds = SecondsWith({Entry("block", 1, 10, 4), Entry("block", 3, 26, 10)});
  ASSERT_EQ(seconds.size(), 4u);
  for (const std::size_t block : {1, 2}) {
    EXPECT_DOUBLE_EQ(seconds[block].weight_gradients.At(1), 4);
    EXPECT_DOUBLE_EQ(seconds[block].weight_gradients.At(3), 10);
    EXPECT_DOUBLE_EQ(seconds[block].backward.At(3), 26);
  }
  for (const std::size_t end : {0, 3}) EXPECT_EQ(seconds[end].weight_gradients.At(1), 0) << end;
}

TEST(MeasuredLayers, WhereNotMeasuredApartTheyAreHalfOfABlocksBackward) {
  const auto seconds = SecondsWith({Entry("block", 1, 10, 0), Entry("block", 3, 26, 0)});
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_DOUBLE_EQ(seconds[1].weight_gradients.At(1), 5);
  EXPECT_DOUBLE_EQ(seconds[1].weight_gradients.At(3), 13);
  EXPECT_EQ(seconds[3].weight_gradients.At(1), 0);
}

/// Each line is fitted by itself.
TEST(MeasuredLayers, WeightGradientsAreNeverMoreThanBackward) {
  const auto seconds = SecondsWith({Entry("block", 1, 10, 1), Entry("block", 3, 12, 11)});
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_LE(seconds[1].weight_gradients.fixed, seconds[1].backward.fixed);
  EXPECT_LE(seconds[1].weight_gradients.per_sample, seconds[1].backward.per_sample);
}

TEST(EstimatedLayers, ABlocksWeightGradientsAreHalfOfItsBackwardsProducts) {
  const auto seconds = EstimatedLayers(ModelShape::Of(kDims), {1e9, 1e9});
  EXPECT_DOUBLE_EQ(seconds[1].weight_gradients.At(2), seconds[1].backward.At(2) / 2);
  EXPECT_EQ(seconds.front().weight_gradients.At(2), 0);
  EXPECT_EQ(seconds.back().weight_gradients.At(2), 0);
}

}  // namespace
}  // namespace adaptive_train::layer_times_test
