// A model's dimensions as Hugging Face's config.json, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// config.json for transformers: GPT2LMHeadModel, BertForMaskedLM, and of kind = llama
/// Qwen2ForCausalLM where QKV alone have biases, MistralForCausalLM where there is a sliding window,
/// otherwise LlamaForCausalLM.
std::string HfConfigText(const ModelDims& dims);

/// What a config.json says.
struct HfConfig {
  ModelDims dims;
  std::int64_t positions = 0;    // that the model has; dims.sequence may be fewer
  std::int64_t token_types = 0;  // BERT's rows of token types; ours adds row 0 to every token
};

/// Reads a config.json, whose text is untrusted. `sequence` keeps the first so many positions;
/// without it, all of them. Refuses, naming key, value and what is allowed, other architectures and
/// every setting with which the model would not be the one that we train: other activations, other
/// rotary scalings than llama3, biases in the feed-forward, a sequence longer than a sliding window.
Result<HfConfig> ParseHfConfig(std::string_view text,
                               std::optional<std::int64_t> sequence = std::nullopt);

}  // namespace adaptive_train
