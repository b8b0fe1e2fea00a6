#include "runtime/checkpoint/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file_io.h"
#include "core/json.h"
#include "runtime/checkpoint/hf_keys.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

OrderedJson Gpt2Json(const ModelDims& dims) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", dims.vocab},
          {"n_positions", dims.sequence},
          {"n_embd", dims.hidden},
          {"n_layer", dims.layers},
          {"n_head", dims.heads},
          {"n_inner", dims.Ffn()},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", dims.NormEpsilon()},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

/// Which of transformers' models a kind = llama is: Qwen 2 has biases on QKV alone, Mistral a
/// sliding window, Llama neither.
enum class LlamaFamily { kLlama, kMistral, kQwen2 };

LlamaFamily FamilyOf(const ModelDims& dims) {
  if (dims.HasQkvBias() && !dims.HasProjectionBias()) return LlamaFamily::kQwen2;
  return dims.sliding_window > 0 ? LlamaFamily::kMistral : LlamaFamily::kLlama;
}

OrderedJson RopeScalingJson(const RopeScaling& rope) {
  if (rope.factor == 1) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_sequence}};
}

/// The keys that the families have in common.
OrderedJson LlamaFamilyJson(const ModelDims& dims, const char* architecture, const char* type) {
  OrderedJson json{{"architectures", {architecture}},
                   {"model_type", type},
                   {"vocab_size", dims.vocab},
                   {"max_position_embeddings", dims.sequence},
                   {"hidden_size", dims.hidden},
                   {"intermediate_size", dims.Ffn()},
                   {"num_hidden_layers", dims.layers},
                   {"num_attention_heads", dims.heads},
                   {"num_key_value_heads", dims.KvHeads()},
                   {"hidden_act", "silu"},
                   {"rms_norm_eps", dims.NormEpsilon()},
                   {"rope_theta", dims.rope_base},
                   {"rope_scaling", RopeScalingJson(dims.rope_scaling)}};
  if (dims.head_size != 0) json["head_dim"] = dims.head_size;
  return json;
}

OrderedJson LlamaJson(const ModelDims& dims) {
  OrderedJson json;
  switch (FamilyOf(dims)) {
    case LlamaFamily::kMistral:
      json = LlamaFamilyJson(dims, "MistralForCausalLM", "mistral");
      json["sliding_window"] = dims.sliding_window;
      break;
    case LlamaFamily::kQwen2:
      json = LlamaFamilyJson(dims, "Qwen2ForCausalLM", "qwen2");
      json["use_sliding_window"] = dims.sliding_window > 0;
      json["sliding_window"] = nullptr;
      if (dims.sliding_window > 0) json["sliding_window"] = dims.sliding_window;
      // The layers below this number see everything.
      json["max_window_layers"] = dims.sliding_window > 0 ? 0 : dims.layers;
      break;
    default:
      json = LlamaFamilyJson(dims, "LlamaForCausalLM", "llama");
      json["attention_bias"] = dims.HasQkvBias();
      json["mlp_bias"] = false;
  }
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  return json;
}

OrderedJson BertJson(const ModelDims& dims) {
  return {{"architectures", {"BertForMaskedLM"}},
          {"model_type", "bert"},
          {"vocab_size", dims.vocab},
          {"max_position_embeddings", dims.sequence},
          {"hidden_size", dims.hidden},
          {"intermediate_size", dims.Ffn()},
          {"num_hidden_layers", dims.layers},
          {"num_attention_heads", dims.heads},
          {"type_vocab_size", 1},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", dims.NormEpsilon()},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0},
          {"position_embedding_type", "absolute"}};
}

/// The kind's own is kept as such, also where a file has it with a float32's roundings.
double ReadEpsilon(HfKeys& keys, const char* key, ModelKind kind, double absent) {
  const double value = keys.Number(key, absent), own = Architecture::Of(kind).norm_epsilon;
  if (std::abs(value - own) <= 1e-6 * own) return 0;
  if (!(value > 0)) keys.Refuse(fmt::format("{} = {}: allowed are numbers above 0", key, value));
  return value;
}

HfConfig ReadGpt2(HfKeys& keys) {
  HfConfig config;
  ModelDims& dims = config.dims;
  dims.kind = ModelKind::kGpt2;
  dims.vocab = keys.Integer("vocab_size");
  dims.sequence = keys.Integer("n_positions");
  dims.hidden = keys.Integer("n_embd");
  dims.layers = keys.Integer("n_layer");
  dims.heads = keys.Integer("n_head");
  dims.ffn = keys.Integer("n_inner", 0);
  dims.tie_embeddings = keys.Flag("tie_word_embeddings", true);
  keys.OneOf("activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "gelu_new");
  dims.norm_epsilon = ReadEpsilon(keys, "layer_norm_epsilon", dims.kind, 1e-5);
  keys.MustBe("scale_attn_weights", true);
  keys.MustBe("scale_attn_by_inverse_layer_idx", false);
  keys.MustBe("add_cross_attention", false);
  return config;
}

/// `name` is the key of an object that says how positions turn.
void ReadRopeObject(HfKeys& keys, const char* name, const Json& object, ModelDims& dims) {
  if (!object.is_object()) {
    return keys.Refuse(fmt::format("{} = {}: allowed is an object", name, InWords(object)));
  }
  HfKeys inner(object);
  dims.rope_base = inner.Number("rope_theta", dims.rope_base);
  inner.MustBe("partial_rotary_factor", 1, 1);
  const char* type = inner.Has("rope_type") ? "rope_type" : "type";
  if (inner.OneOf(type, {"default", "llama3"}, "default") == "llama3") {
    dims.rope_scaling.factor = inner.Number("factor");
    dims.rope_scaling.low_freq_factor = inner.Number("low_freq_factor");
    dims.rope_scaling.high_freq_factor = inner.Number("high_freq_factor");
    dims.rope_scaling.original_sequence = inner.Integer("original_max_position_embeddings");
  }
  if (inner.error()) keys.Refuse(fmt::format("{}: {}", name, *inner.error()));
}

/// The rotary base stands alone, with rope_scaling for what is not as usual, or (newer files) both
/// are in rope_parameters.
void ReadRope(HfKeys& keys, ModelDims& dims) {
  dims.rope_base = keys.Number("rope_theta", kRopeBase);
  keys.MustBe("partial_rotary_factor", 1, 1);
  if (const Json* rope = keys.Find("rope_parameters")) {
    keys.MustBeAbsent("rope_scaling");
    return ReadRopeObject(keys, "rope_parameters", *rope, dims);
  }
  if (const Json* rope = keys.Find("rope_scaling")) {
    ReadRopeObject(keys, "rope_scaling", *rope, dims);
  }
}

/// What Llama and its relatives have in common. Without the key they have `kv_heads` heads of keys
/// and values, with null (in Llama also without the key) as many as heads.
HfConfig ReadLlamaFamily(HfKeys& keys, std::optional<std::int64_t> kv_heads) {
  HfConfig config;
  ModelDims& dims = config.dims;
  dims.kind = ModelKind::kLlama;
  dims.vocab = keys.Integer("vocab_size");
  dims.sequence = keys.Integer("max_position_embeddings");
  dims.hidden = keys.Integer("hidden_size");
  dims.layers = keys.Integer("num_hidden_layers");
  dims.heads = keys.Integer("num_attention_heads");
  const std::int64_t absent =
      keys.Has("num_key_value_heads") ? dims.heads : kv_heads.value_or(dims.heads);
  dims.kv_heads = keys.Integer("num_key_value_heads", absent);
  dims.ffn = keys.Integer("intermediate_size");
  dims.tie_embeddings = keys.Flag("tie_word_embeddings", false);
  const bool even = dims.heads > 0 && dims.hidden % dims.heads == 0;
  const std::int64_t own = even ? dims.hidden / dims.heads : 0;
  const std::int64_t head_size = keys.Integer("head_dim", own);
  if (keys.Find("head_dim") != nullptr && head_size < 1)
    keys.Refuse(fmt::format("head_dim = {}: 1 or more is needed", head_size));
  if (head_size != own) dims.head_size = head_size;
  keys.OneOf("hidden_act", {"silu", "swish"}, "silu");
  dims.norm_epsilon = ReadEpsilon(keys, "rms_norm_eps", dims.kind, 1e-6);
  ReadRope(keys, dims);
  return config;
}

HfConfig ReadLlama(HfKeys& keys) {
  HfConfig config = ReadLlamaFamily(keys, std::nullopt);
  if (keys.Flag("attention_bias", false)) config.dims.attention_bias = AttentionBias::kAll;
  keys.MustBe("mlp_bias", false);
  return config;
}

std::int64_t ReadWindow(HfKeys& keys, std::int64_t absent) {
  const std::int64_t window = keys.Integer("sliding_window", absent);
  if (window < 1) keys.Refuse(fmt::format("sliding_window = {}: 1 or more is needed", window));
  return window;
}

HfConfig ReadMistral(HfKeys& keys) {
  HfConfig config = ReadLlamaFamily(keys, 8);
  if (!keys.Has("sliding_window") || keys.Find("sliding_window") != nullptr)
    config.dims.sliding_window = ReadWindow(keys, 4096);
  return config;
}

/// Layers from max_window_layers on have the window, where there is one.
HfConfig ReadQwen2(HfKeys& keys) {
  HfConfig config = ReadLlamaFamily(keys, 32);
  config.dims.attention_bias = AttentionBias::kQkv;
  if (keys.Flag("use_sliding_window", false) &&
      keys.Integer("max_window_layers", 28) < config.dims.layers) {
    config.dims.sliding_window = ReadWindow(keys, 4096);
  }
  return config;
}

HfConfig ReadBert(HfKeys& keys) {
  HfConfig config;
  ModelDims& dims = config.dims;
  dims.kind = ModelKind::kBert;
  dims.vocab = keys.Integer("vocab_size");
  dims.sequence = keys.Integer("max_position_embeddings");
  dims.hidden = keys.Integer("hidden_size");
  dims.layers = keys.Integer("num_hidden_layers");
  dims.heads = keys.Integer("num_attention_heads");
  dims.ffn = keys.Integer("intermediate_size");
  dims.tie_embeddings = keys.Flag("tie_word_embeddings", true);
  config.token_types = keys.Integer("type_vocab_size", 2);
  if (config.token_types < 1)
    keys.Refuse(fmt::format("type_vocab_size = {}: 1 or more is needed", config.token_types));
  keys.OneOf("hidden_act", {"gelu"}, "gelu");
  dims.norm_epsilon = ReadEpsilon(keys, "layer_norm_eps", dims.kind, 1e-12);
  keys.OneOf("position_embedding_type", {"absolute"}, "absolute");
  keys.MustBe("is_decoder", false);
  keys.MustBe("add_cross_attention", false);
  return config;
}

}  // namespace

std::string HfConfigText(const ModelDims& dims) {
  OrderedJson json = dims.kind == ModelKind::kGpt2    ? Gpt2Json(dims)
                     : dims.kind == ModelKind::kLlama ? LlamaJson(dims)
                                                      : BertJson(dims);
  json["tie_word_embeddings"] = dims.tie_embeddings;
  json["torch_dtype"] = "float32";
  return json.dump(2) + "\n";
}

namespace {

struct ModelType {
  std::string_view name;
  HfConfig (*read)(HfKeys&);
};

constexpr ModelType kModelTypes[] = {{"gpt2", ReadGpt2},
                                     {"llama", ReadLlama},
                                     {"mistral", ReadMistral},
                                     {"qwen2", ReadQwen2},
                                     {"bert", ReadBert}};

Result<HfConfig> ReadModelType(const Json& json) {
  HfKeys keys(json);
  const Json* type = keys.Find("model_type");
  const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  std::vector<std::string_view> allowed;
  for (const ModelType& one : kModelTypes) {
    allowed.push_back(one.name);
    if (one.name != name) continue;
    HfConfig config = one.read(keys);
    if (keys.error()) return Fail(*keys.error());
    return config;
  }
  return Fail(fmt::format("model_type = \"{}\": allowed are {}", Printable(name, 40),
                          fmt::join(allowed, ", ")));
}

/// Shortens the model to `sequence` positions.
Result<void> Shorten(HfConfig& config, std::optional<std::int64_t> sequence) {
  ModelDims& dims = config.dims;
  config.positions = dims.sequence;
  dims.sequence = sequence.value_or(config.positions);
  if (sequence && (dims.sequence < 1 || dims.sequence > config.positions)) {
    return Fail(
        fmt::format("a sequence of {}: allowed are 1 to {}", dims.sequence, config.positions));
  }
  if (dims.sliding_window > 0 && dims.sequence > dims.sliding_window) {
    return Fail(fmt::format(
        "sliding_window = {}: a sequence of {} is longer, which is not supported; allowed are 1 to "
        "{} (import --sequence)",
        dims.sliding_window, dims.sequence, dims.sliding_window));
  }
  return {};
}

}  // namespace

Result<HfConfig> ParseHfConfig(std::string_view text, std::optional<std::int64_t> sequence) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) return Fail("not a JSON object");
    auto config = ReadModelType(json);
    if (!config) return config;
    auto shortened = Shorten(*config, sequence);
    if (!shortened) return tl::unexpected(shortened.error());
    auto good = CheckDims(config->dims);
    if (!good) return tl::unexpected(good.error());
    return config;
  } catch (const Json::exception& error) {
    return Fail(InWords(error));
  }
}

}  // namespace adaptive_train
