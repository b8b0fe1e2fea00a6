// The request and the answer of an evaluation survive a round trip.
#include "core/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace adaptive_train::evaluation_test {
namespace {

using testing::HasSubstr;

EvaluationRequest Request() {
  EvaluationRequest request;
  request.dims = {.layers = 2,
                  .heads = 4,
                  .hidden = 32,
                  .sequence = 16,
                  .vocab = 300,
                  .tie_embeddings = false,
                  .kind = ModelKind::kLlama,
                  .kv_heads = 2,
                  .ffn = 48,
                  .head_size = 6,
                  .attention_bias = AttentionBias::kQkv,
                  .norm_epsilon = 1e-6,
                  .rope_base = 5e5,
                  .rope_scaling = {.factor = 4, .original_sequence = 8},
                  .sliding_window = 20};
  request.checkpoint = "/a \"b\"";
  request.data = "x.bin";
  request.format = "megatron";
  request.text_vocab = 299;
  request.samples = 7;
  request.batch = 3;
  request.threads = 2;
  request.seed = 11;
  return request;
}

TEST(EvaluationRequest, ComesBackAsItWas) {
  const EvaluationRequest sent = Request();
  const auto got = EvaluationRequestFromJson(ToJson(sent));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(ToJson(sent), ToJson(*got));
  EXPECT_EQ(ModelKind::kLlama, got->dims.kind);
  EXPECT_EQ(48, got->dims.Ffn());
  EXPECT_EQ(6, got->dims.HeadSize());
  EXPECT_EQ(AttentionBias::kQkv, got->dims.attention_bias);
  EXPECT_EQ(1e-6, got->dims.norm_epsilon);
  EXPECT_EQ(5e5, got->dims.rope_base);
  EXPECT_EQ(sent.dims.rope_scaling, got->dims.rope_scaling);
  EXPECT_EQ(20, got->dims.sliding_window);
  EXPECT_EQ("/a \"b\"", got->checkpoint);
  EXPECT_EQ(7, got->samples);
}

TEST(EvaluationRequest, RefusesWhatCannotBe) {
  EvaluationRequest request = Request();
  request.dims.heads = 5;
  EXPECT_THAT(EvaluationRequestFromJson(ToJson(request)).error().message,
              HasSubstr("does not divide model.heads"));
  request = Request();
  request.batch = 0;
  EXPECT_THAT(EvaluationRequestFromJson(ToJson(request)).error().message,
              HasSubstr("batch: not a whole number from 1"));
  EXPECT_FALSE(EvaluationRequestFromJson("{}"));
  EXPECT_FALSE(EvaluationRequestFromJson("nonsense"));
}

TEST(Evaluation, OfADivergedModelIsNoNumber) {
  Evaluation sent;
  sent.loss = std::nan("");
  const auto got = EvaluationFromJson(ToJson(sent));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(std::isnan(got->loss));
}

TEST(Evaluation, ComesBackAndKnowsItsPerplexity) {
  const Evaluation sent{.loss = 2,
                        .unigram_entropy = 3,
                        .targets = 80,
                        .samples = 5,
                        .seconds = 0.5,
                        .data = "d",
                        .device = "c"};
  const auto got = EvaluationFromJson(ToJson(sent));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_DOUBLE_EQ(std::exp(2), got->Perplexity());
  EXPECT_EQ(ToJson(sent), ToJson(*got));
  EXPECT_THAT(ToJson(sent), HasSubstr("\"perplexity\":7.38905"));
}

}  // namespace
}  // namespace adaptive_train::evaluation_test
