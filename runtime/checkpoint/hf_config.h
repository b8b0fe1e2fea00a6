// A model's dimensions as Hugging Face's config.json, and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// config.json for transformers: GPT2LMHeadModel, LlamaForCausalLM or BertForMaskedLM.
std::string HfConfigText(const ModelDims& dims);

/// What a config.json says.
struct HfConfig {
  ModelDims dims;
  std::int64_t token_types = 0;  // BERT's rows of token types; ours adds row 0 to every token
};

/// Reads a config.json, whose text is untrusted. Refuses, naming key, value and what is allowed,
/// other architectures and every setting with which the model would not be the one that we train:
/// other activations, epsilons, rotary bases or scalings, biases where there are none, other head
/// sizes.
Result<HfConfig> ParseHfConfig(std::string_view text);

}  // namespace adaptive_train
