// Counts of models of known size, and impossible dimensions.
#include "core/model_shape.h"

#include <gtest/gtest.h>

namespace adaptive_train::model_shape_test {
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

constexpr ModelDims kLlama{.layers = 2,
                           .heads = 2,
                           .hidden = 8,
                           .sequence = 6,
                           .vocab = 11,
                           .kind = ModelKind::kLlama,
                           .ffn = 12};

TEST(ModelShape, HeadsOfAnotherSizeAndBiasesCount) {
  ModelDims dims = kLlama;
  const LayerShape plain = ModelShape::Of(dims).layers[1];
  dims.head_size = 6;  // 12 attention columns instead of 8
  const LayerShape wider = ModelShape::Of(dims).layers[1];
  EXPECT_EQ(plain.parameters + 8 * (3 * 4 + 4), wider.parameters);
  EXPECT_DOUBLE_EQ(plain.forward_flops_per_token + 2 * 8 * (3 * 4 + 4) + 4 * 6 * 4,
                   wider.forward_flops_per_token);
  EXPECT_EQ(plain.activation_bytes_per_sample + 4 * 6 * (3 * 4 + 4),
            wider.activation_bytes_per_sample);
  dims.attention_bias = AttentionBias::kQkv;
  EXPECT_EQ(wider.parameters + 36, ModelShape::Of(dims).layers[1].parameters);
  dims.attention_bias = AttentionBias::kAll;
  EXPECT_EQ(wider.parameters + 36 + 8, ModelShape::Of(dims).layers[1].parameters);
}

TEST(IdentityOf, IsAsItWasUnlessTheKindsOwnIsLeft) {
  EXPECT_EQ("model.kind = gpt2, model.heads = 12", IdentityOf(kGpt2Small));
  ModelDims dims = kLlama;
  EXPECT_EQ("model.kind = llama, model.heads = 2", IdentityOf(dims));
  dims.norm_epsilon = 1e-5;
  EXPECT_EQ("model.kind = llama, model.heads = 2", IdentityOf(dims));
  dims.norm_epsilon = 1e-6;
  dims.rope_base = 5e5;
  EXPECT_EQ(
      "model.kind = llama, model.norm_epsilon = 1e-06, model.rope_base = 500000, model.heads = 2",
      IdentityOf(dims));
  dims.rope_scaling.factor = 8;
  EXPECT_NE(std::string::npos, IdentityOf(dims).find("model.rope_scaling = llama3 by 8 from 8192"));
}

TEST(CheckDims, RefusesWhatLlamasRelativesCannotBe) {
  const auto error = [](auto change, ModelDims dims = kLlama) {
    change(dims);
    const auto checked = CheckDims(dims);
    return checked ? "accepted" : checked.error().message;
  };
  EXPECT_EQ("accepted", error([](ModelDims& dims) { dims.head_size = 6; }));
  EXPECT_EQ("model.head_size = 3: rotary positions need an even size",
            error([](ModelDims& dims) { dims.head_size = 3; }));
  EXPECT_EQ(
      "model.head_size = 1048576: allowed are 1 to 524288, for at most 1048576 with model.heads = "
      "2",
      error([](ModelDims& dims) { dims.head_size = 1 << 20; }));
  EXPECT_EQ("model.rope_base = 0.5: allowed are 1 to 1000000000000",
            error([](ModelDims& dims) { dims.rope_base = 0.5; }));
  EXPECT_EQ("model.norm_epsilon = 0.2: allowed are numbers above 0 up to 0.1",
            error([](ModelDims& dims) { dims.norm_epsilon = 0.2; }));
  EXPECT_EQ("accepted", error([](ModelDims& dims) { dims.sliding_window = 6; }));
  EXPECT_EQ(
      "model.sliding_window = 5: a sequence that is longer than the window is not supported; "
      "allowed is model.sequence up to the window, not 6",
      error([](ModelDims& dims) { dims.sliding_window = 5; }));
  EXPECT_EQ("model.head_size is set: only model.kind = llama has it, not gpt2",
            error([](ModelDims& dims) { dims.head_size = 64; }, kGpt2Small));
  EXPECT_EQ("model.rope_base is set: only model.kind = llama has it, not gpt2",
            error([](ModelDims& dims) { dims.rope_base = 500; }, kGpt2Small));
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
}  // namespace adaptive_train::model_shape_test
