#include "core/evaluation.h"

#include <cmath>
#include <limits>

#include "core/json.h"

namespace adaptive_train {

NLOHMANN_JSON_SERIALIZE_ENUM(ModelKind, {{ModelKind::kGpt2, "gpt2"},
                                         {ModelKind::kLlama, "llama"},
                                         {ModelKind::kBert, "bert"}})
NLOHMANN_JSON_SERIALIZE_ENUM(AttentionBias, {{AttentionBias::kOfKind, "auto"},
                                             {AttentionBias::kNone, "none"},
                                             {AttentionBias::kQkv, "qkv"},
                                             {AttentionBias::kAll, "all"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RopeScaling, factor, low_freq_factor, high_freq_factor,
                                   original_sequence)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelDims, layers, heads, hidden, sequence, vocab,
                                   tie_embeddings, kind, kv_heads, ffn, head_size, attention_bias,
                                   norm_epsilon, rope_base, rope_scaling, sliding_window)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EvaluationRequest, dims, checkpoint, data, format, text_vocab,
                                   samples, batch, threads, seed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Evaluation, loss, unigram_entropy, targets, samples, seconds,
                                   data, device)

namespace {

template <class T>
std::string Text(const T& value) {
  nlohmann::json json = value;
  json["format_version"] = kFormatVersion;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

double Evaluation::Perplexity() const { return std::exp(loss); }

std::string ToJson(const EvaluationRequest& request) { return Text(request); }

std::string ToJson(const Evaluation& evaluation) {
  nlohmann::json json = nlohmann::json::parse(Text(evaluation));
  json["perplexity"] = evaluation.Perplexity();
  return json.dump();
}

Result<EvaluationRequest> EvaluationRequestFromJson(std::string_view text) {
  return ReadJson<EvaluationRequest>(
      text, "evaluation request", [](const nlohmann::json& json) -> Result<EvaluationRequest> {
        auto request = json.get<EvaluationRequest>();
        if (auto good = CheckDims(request.dims); !good) return tl::unexpected(good.error());
        if (request.text_vocab < 1 || request.text_vocab > request.dims.vocab ||
            request.dims.vocab < 2)
          return Fail("evaluation request: text_vocab must lie from 1 to the vocabulary");
        if (request.batch < 1 || request.threads < 1 || request.samples < 0)
          return Fail("evaluation request: batch and threads must be 1 or more");
        return request;
      });
}

Result<Evaluation> EvaluationFromJson(std::string_view text) {
  return ReadJson<Evaluation>(text, "evaluation",
                              [](const nlohmann::json& json) -> Result<Evaluation> {
                                // JSON has no NaN: a loss that is NaN becomes null.
                                nlohmann::json numbers = json;
                                const bool diverged = json.at("loss").is_null();
                                if (diverged) numbers["loss"] = 0;
                                auto evaluation = numbers.get<Evaluation>();
                                if (diverged)
                                  evaluation.loss = std::numeric_limits<double>::quiet_NaN();
                                return evaluation;
                              });
}

}  // namespace adaptive_train
