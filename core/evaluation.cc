#include "core/evaluation.h"

#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>
#include <limits>

#include "core/json_reader.h"

namespace adaptive_train {

namespace {

constexpr std::int64_t kAnyNumber = std::numeric_limits<std::int64_t>::max();

nlohmann::json ToObject(const RopeScaling& rope) {
  return {{"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_sequence", rope.original_sequence}};
}

nlohmann::json ToObject(const ModelDims& dims) {
  return {{"layers", dims.layers},
          {"heads", dims.heads},
          {"hidden", dims.hidden},
          {"sequence", dims.sequence},
          {"vocab", dims.vocab},
          {"tie_embeddings", dims.tie_embeddings},
          {"kind", ToString(dims.kind)},
          {"kv_heads", dims.kv_heads},
          {"ffn", dims.ffn},
          {"head_size", dims.head_size},
          {"attention_bias", ToString(dims.attention_bias)},
          {"norm_epsilon", dims.norm_epsilon},
          {"rope_base", dims.rope_base},
          {"rope_scaling", ToObject(dims.rope_scaling)},
          {"sliding_window", dims.sliding_window}};
}

std::string Text(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// One of `allowed` by its name.
template <class Choice>
void ReadChoice(const JsonReader& reader, const char* key, std::initializer_list<Choice> allowed,
                Choice& choice) {
  std::string name;
  reader.Read(key, name);
  std::vector<std::string> names;
  for (const Choice one : allowed) {
    names.push_back(ToString(one));
    if (names.back() != name) continue;
    choice = one;
    return;
  }
  reader.Refuse(key, fmt::format("must be one of {}", fmt::join(names, ", ")));
}

ModelDims ReadDims(const JsonReader& reader) {
  ModelDims dims;
  reader.Read("layers", dims.layers, 0, kAnyNumber);
  reader.Read("heads", dims.heads, 0, kAnyNumber);
  reader.Read("hidden", dims.hidden, 0, kAnyNumber);
  reader.Read("sequence", dims.sequence, 0, kAnyNumber);
  reader.Read("vocab", dims.vocab, 0, kAnyNumber);
  reader.Read("tie_embeddings", dims.tie_embeddings);
  ReadChoice(reader, "kind", {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}, dims.kind);
  reader.Read("kv_heads", dims.kv_heads, 0, kAnyNumber);
  reader.Read("ffn", dims.ffn, 0, kAnyNumber);
  reader.Read("head_size", dims.head_size, 0, kAnyNumber);
  ReadChoice(
      reader, "attention_bias",
      {AttentionBias::kOfKind, AttentionBias::kNone, AttentionBias::kQkv, AttentionBias::kAll},
      dims.attention_bias);
  reader.ReadNumber("norm_epsilon", dims.norm_epsilon);
  reader.ReadNumber("rope_base", dims.rope_base);
  const JsonReader rope = reader.Part("rope_scaling");
  rope.ReadNumber("factor", dims.rope_scaling.factor);
  rope.ReadNumber("low_freq_factor", dims.rope_scaling.low_freq_factor);
  rope.ReadNumber("high_freq_factor", dims.rope_scaling.high_freq_factor);
  rope.Read("original_sequence", dims.rope_scaling.original_sequence, 0, kAnyNumber);
  reader.Read("sliding_window", dims.sliding_window, 0, kAnyNumber);
  return dims;
}

}  // namespace

double Evaluation::Perplexity() const { return std::exp(loss); }

std::string ToJson(const EvaluationRequest& request) {
  return Text({{"format_version", kFormatVersion},
               {"dims", ToObject(request.dims)},
               {"checkpoint", request.checkpoint},
               {"data", request.data},
               {"format", request.format},
               {"text_vocab", request.text_vocab},
               {"samples", request.samples},
               {"batch", request.batch},
               {"threads", request.threads},
               {"seed", request.seed}});
}

std::string ToJson(const Evaluation& evaluation) {
  return Text({{"format_version", kFormatVersion},
               {"loss", evaluation.loss},
               {"perplexity", evaluation.Perplexity()},
               {"unigram_entropy", evaluation.unigram_entropy},
               {"targets", evaluation.targets},
               {"samples", evaluation.samples},
               {"seconds", evaluation.seconds},
               {"data", evaluation.data},
               {"device", evaluation.device}});
}

Result<EvaluationRequest> EvaluationRequestFromJson(std::string_view text) {
  return ReadJson<EvaluationRequest>(
      text, "evaluation request", [](const nlohmann::json& json) -> Result<EvaluationRequest> {
        EvaluationRequest request;
        std::string error;
        const JsonReader reader(json, "", error);
        request.dims = ReadDims(reader.Part("dims"));
        reader.ReadAnyText("checkpoint", request.checkpoint);
        reader.ReadAnyText("data", request.data);
        reader.Read("format", request.format);
        reader.Read("text_vocab", request.text_vocab, 1, kAnyNumber);
        reader.Read("samples", request.samples, 0, kAnyNumber);
        reader.Read("batch", request.batch, 1, kAnyNumber);
        reader.Read("threads", request.threads, 1, kAnyNumber);
        reader.Read("seed", request.seed, std::numeric_limits<std::int64_t>::min(), kAnyNumber);
        if (!error.empty()) return Fail("evaluation request: " + error);
        if (auto good = CheckDims(request.dims); !good) return tl::unexpected(good.error());
        if (request.text_vocab > request.dims.vocab || request.dims.vocab < 2)
          return Fail("evaluation request: text_vocab must lie from 1 to the vocabulary");
        return request;
      });
}

Result<Evaluation> EvaluationFromJson(std::string_view text) {
  return ReadJson<Evaluation>(text, "evaluation",
                              [](const nlohmann::json& json) -> Result<Evaluation> {
                                Evaluation evaluation;
                                std::string error;
                                const JsonReader reader(json, "", error);
                                // JSON has no NaN: a loss that is none travels as null.
                                evaluation.loss = std::numeric_limits<double>::quiet_NaN();
                                if (reader.FindOptional("loss") != nullptr)
                                  reader.ReadReal("loss", evaluation.loss);
                                reader.ReadReal("unigram_entropy", evaluation.unigram_entropy);
                                reader.Read("targets", evaluation.targets, 0, kAnyNumber);
                                reader.Read("samples", evaluation.samples, 0, kAnyNumber);
                                reader.ReadReal("seconds", evaluation.seconds);
                                reader.ReadAnyText("data", evaluation.data);
                                reader.ReadAnyText("device", evaluation.device);
                                if (!error.empty()) return Fail("evaluation: " + error);
                                return evaluation;
                              });
}

}  // namespace adaptive_train
