// The request and the answer of an evaluation across a process border.
#include "core/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace adaptive_train {
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
                  .ffn = 48};
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
  EXPECT_EQ("/a \"b\"", got->checkpoint);
  EXPECT_EQ(7, got->samples);
}

TEST(EvaluationRequest, RefusesWhatCannotBe) {
  EvaluationRequest request = Request();
  request.dims.heads = 5;
  EXPECT_THAT(EvaluationRequestFromJson(ToJson(request)).error().message,
              HasSubstr("is not a multiple of model.heads"));
  request = Request();
  request.batch = 0;
  EXPECT_THAT(EvaluationRequestFromJson(ToJson(request)).error().message,
              HasSubstr("batch and threads"));
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
}  // namespace adaptive_train
