#include "runtime/checkpoint/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file_io.h"
#include "core/json.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Takes keys from a config.json and keeps the first thing that is wrong.
class HfKeys {
 public:
  explicit HfKeys(const Json& json) : json_(json) {}

  const std::optional<std::string>& error() const { return error_; }

  /// A whole number; without the key, or where it is null, `absent`, or an error if there is none.
  std::int64_t Integer(const char* key, std::optional<std::int64_t> absent = std::nullopt) {
    const Json* value = Find(key);
    if (value == nullptr && absent) return *absent;
    if (value != nullptr && value->is_number_integer()) return value->get<std::int64_t>();
    Wrong(key, value, "a whole number");
    return 0;
  }

  bool Flag(const char* key, bool absent) {
    const Json* value = Find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) Wrong(key, value, "true or false");
    return value->is_boolean() && value->get<bool>();
  }

  /// The flag must be `allowed`, which is also its meaning where the key is missing.
  void MustBe(const char* key, bool allowed) {
    if (Flag(key, allowed) != allowed) Wrong(key, Find(key), allowed ? "true" : "false");
  }

  void MustBe(const char* key, double allowed, double absent) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_number())
      return Wrong(key, value, fmt::format("{}", allowed));
    const double number = value == nullptr ? absent : value->get<double>();
    if (!(std::abs(number - allowed) <= 1e-6 * allowed)) {
      Refuse(fmt::format("{} = {}: allowed is {}", key, number, allowed));
    }
  }

  void MustBeOneOf(const char* key, std::initializer_list<const char*> allowed,
                   const char* absent) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_string())
      return Wrong(key, value, fmt::format("{}", fmt::join(allowed, ", ")));
    const std::string text = value == nullptr ? absent : value->get<std::string>();
    for (const char* one : allowed) {
      if (text == one) return;
    }
    Refuse(fmt::format("{} = {}: allowed {} {}", key, Printable(text, 40),
                       allowed.size() == 1 ? "is" : "are", fmt::join(allowed, ", ")));
  }

  /// A key under which other settings of the model hide: missing or null.
  void MustBeAbsent(const char* key) {
    if (const Json* value = Find(key)) Wrong(key, value, "null");
  }

  const Json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  void Refuse(std::string message) {
    if (!error_) error_ = std::move(message);
  }

 private:
  void Wrong(const char* key, const Json* value, const std::string& allowed) {
    Refuse(value == nullptr ? fmt::format("{} is missing: {} is needed", key, allowed)
                            : fmt::format("{} = {}: allowed is {}", key, InWords(*value), allowed));
  }

  const Json& json_;
  std::optional<std::string> error_;
};

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
          {"layer_norm_epsilon", Architecture::Of(dims.kind).norm_epsilon},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

OrderedJson LlamaJson(const ModelDims& dims) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", dims.vocab},
          {"max_position_embeddings", dims.sequence},
          {"hidden_size", dims.hidden},
          {"intermediate_size", dims.Ffn()},
          {"num_hidden_layers", dims.layers},
          {"num_attention_heads", dims.heads},
          {"num_key_value_heads", dims.KvHeads()},
          {"hidden_act", "silu"},
          {"rms_norm_eps", Architecture::Of(dims.kind).norm_epsilon},
          {"rope_theta", 10000.0},
          {"rope_scaling", nullptr},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
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
          {"layer_norm_eps", Architecture::Of(dims.kind).norm_epsilon},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0},
          {"position_embedding_type", "absolute"}};
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
  keys.MustBeOneOf("activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "gelu_new");
  keys.MustBe("layer_norm_epsilon", 1e-5, 1e-5);
  keys.MustBe("scale_attn_weights", true);
  keys.MustBe("scale_attn_by_inverse_layer_idx", false);
  keys.MustBe("add_cross_attention", false);
  return config;
}

/// The rotary base stands alone, or (newer files) beside the rotation's type in rope_parameters.
void CheckRotary(HfKeys& keys) {
  keys.MustBeAbsent("rope_scaling");
  if (const Json* rope = keys.Find("rope_parameters")) {
    if (!rope->is_object()) return keys.Refuse("rope_parameters is not an object");
    HfKeys inner(*rope);
    inner.MustBeOneOf("rope_type", {"default"}, "default");
    inner.MustBe("rope_theta", 10000, 10000);
    if (inner.error()) keys.Refuse("rope_parameters: " + *inner.error());
    return;
  }
  keys.MustBe("rope_theta", 10000, 10000);
}

HfConfig ReadLlama(HfKeys& keys) {
  HfConfig config;
  ModelDims& dims = config.dims;
  dims.kind = ModelKind::kLlama;
  dims.vocab = keys.Integer("vocab_size");
  dims.sequence = keys.Integer("max_position_embeddings");
  dims.hidden = keys.Integer("hidden_size");
  dims.layers = keys.Integer("num_hidden_layers");
  dims.heads = keys.Integer("num_attention_heads");
  dims.kv_heads = keys.Integer("num_key_value_heads", dims.heads);
  dims.ffn = keys.Integer("intermediate_size");
  dims.tie_embeddings = keys.Flag("tie_word_embeddings", false);
  const std::int64_t head_size = dims.heads > 0 ? dims.hidden / dims.heads : 0;
  if (keys.Integer("head_dim", head_size) != head_size) {
    keys.Refuse(fmt::format("head_dim = {}: allowed is hidden_size / num_attention_heads = {}",
                            keys.Integer("head_dim"), head_size));
  }
  keys.MustBeOneOf("hidden_act", {"silu", "swish"}, "silu");
  keys.MustBe("rms_norm_eps", 1e-5, 1e-6);
  keys.MustBe("attention_bias", false);
  keys.MustBe("mlp_bias", false);
  CheckRotary(keys);
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
  keys.MustBeOneOf("hidden_act", {"gelu"}, "gelu");
  keys.MustBe("layer_norm_eps", 1e-12, 1e-12);
  keys.MustBeOneOf("position_embedding_type", {"absolute"}, "absolute");
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

Result<HfConfig> ParseHfConfig(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) return Fail("not a JSON object");
    HfKeys keys(json);
    const Json* type = keys.Find("model_type");
    const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
    HfConfig config;
    if (name == "gpt2") {
      config = ReadGpt2(keys);
    } else if (name == "llama") {
      config = ReadLlama(keys);
    } else if (name == "bert") {
      config = ReadBert(keys);
    } else {
      return Fail(
          fmt::format("model_type = \"{}\": allowed are gpt2, llama, bert", Printable(name, 40)));
    }
    if (keys.error()) return Fail(*keys.error());
    auto good = CheckDims(config.dims);
    if (!good) return tl::unexpected(good.error());
    return config;
  } catch (const Json::exception& error) {
    return Fail(Printable(error.what()));
  }
}

}  // namespace adaptive_train
