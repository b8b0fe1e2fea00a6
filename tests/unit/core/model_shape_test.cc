// Counts of models whose size is known, and dimensions that cannot be.
#include "core/model_shape.h"

#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

constexpr ModelDims kGpt2Small{
    .layers = 12, .heads = 12, .hidden = 768, .sequence = 1024, .vocab = 50257};

TEST(ModelShape, Gpt2SmallHasItsPublishedSize) {
  const ModelShape shape = ModelShape::Of(kGpt2Small);
  EXPECT_EQ(124439808, shape.total.parameters);
  ASSERT_EQ(14U, shape.layers.size());
  EXPECT_EQ("embedding", shape.layers.front().name);
  EXPECT_EQ("h.0", shape.layers[1].name);
  EXPECT_EQ("head", shape.layers.back().name);
  EXPECT_EQ(7087872, shape.layers[1].parameters);
  EXPECT_EQ(124439808 * 4, shape.total.parameter_bytes);
  EXPECT_EQ(124439808 * 4, shape.total.gradient_bytes);
  EXPECT_EQ(124439808LL * 8, shape.total.optimizer_bytes);
}

TEST(ModelShape, AnUntiedHeadHasItsOwnWeight) {
  ModelDims dims = kGpt2Small;
  dims.tie_embeddings = false;
  EXPECT_EQ(124439808 + 50257 * 768, ModelShape::Of(dims).total.parameters);
}

TEST(ModelShape, FlopsAreTwoPerProductOfForward) {
  const ModelDims dims{.layers = 2, .heads = 1, .hidden = 4, .sequence = 3, .vocab = 5};
  const ModelShape shape = ModelShape::Of(dims);
  const double block = 2 * (4 * 12 + 4 * 4 + 4 * 16 + 16 * 4) + 2 * (3 * 4 + 3 * 4);
  EXPECT_DOUBLE_EQ(block, shape.layers[1].forward_flops_per_token);
  EXPECT_DOUBLE_EQ(2 * block + 2 * 4 * 5, shape.total.forward_flops_per_token);
  EXPECT_DOUBLE_EQ(3 * shape.total.forward_flops_per_token, shape.TrainFlopsPerToken());
}

TEST(ModelShape, TotalIsTheSumOfLayersAndWorkspace) {
  const ModelShape shape = ModelShape::Of(kGpt2Small);
  std::int64_t bytes = shape.workspace_bytes_per_sample;
  for (const LayerShape& layer : shape.layers) bytes += layer.activation_bytes_per_sample;
  EXPECT_EQ(bytes, shape.total.activation_bytes_per_sample);
}

TEST(CheckDims, NamesTheKeyAndWhatIsAllowed) {
  EXPECT_TRUE(CheckDims(kGpt2Small));
  ModelDims dims = kGpt2Small;
  dims.heads = 7;
  EXPECT_EQ("model.hidden = 768 is not a multiple of model.heads = 7",
            CheckDims(dims).error().message);
  dims = kGpt2Small;
  dims.layers = 0;
  EXPECT_EQ("model.layers = 0: allowed are 1 to 1048576", CheckDims(dims).error().message);
  dims.layers = 1;
  dims.vocab = std::int64_t{1} << 40;
  EXPECT_EQ("model.vocab = 1099511627776: allowed are 1 to 1048576",
            CheckDims(dims).error().message);
}

}  // namespace
}  // namespace adaptive_train
