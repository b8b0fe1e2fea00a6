// Hugging Face's config.json: whatever is accepted is a model that can be built.
#include "runtime/checkpoint/hf_config.h"

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const auto config = ParseHfConfig(input);
  if (!config) return Require(!config.error().message.empty());
  Require(CheckDims(config->dims).has_value());
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    ModelDims dims{.layers = 2, .heads = 4, .hidden = 8, .sequence = 6, .vocab = 11};
    dims.kind = kind;
    seeds.push_back(HfConfigText(dims));
  }
  for (const bool biases : {false, true}) {
    ModelDims dims{.layers = 2, .heads = 4, .hidden = 8, .sequence = 6, .vocab = 11};
    dims.kind = ModelKind::kLlama;
    dims.head_size = 4;
    dims.rope_base = 5e5;
    dims.rope_scaling.factor = 8;
    dims.sliding_window = 6;
    if (biases) dims.attention_bias = AttentionBias::kQkv;
    seeds.push_back(HfConfigText(dims));
  }
  return seeds;
}

}  // namespace adaptive_train::fuzz
