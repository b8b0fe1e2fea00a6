#include "runtime/checkpoint/hf_names.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <optional>
#include <string_view>

namespace adaptive_train {
namespace {

/// What a tensor takes of our columns.
enum class Part { kWhole, kQueries, kKeys, kValues, kGate, kUp };

/// Ours, without ".weight" or ".bias", "h.{}" for a block; theirs likewise.
struct Rule {
  std::string_view ours;
  std::string_view theirs;
  Part part = Part::kWhole;
};

constexpr Rule kGpt2Rules[] = {
    {"wte", "transformer.wte"},
    {"wpe", "transformer.wpe"},
    {"h.{}.ln_1", "transformer.h.{}.ln_1"},
    {"h.{}.attn.c_attn", "transformer.h.{}.attn.c_attn"},
    {"h.{}.attn.c_proj", "transformer.h.{}.attn.c_proj"},
    {"h.{}.ln_2", "transformer.h.{}.ln_2"},
    {"h.{}.mlp.c_fc", "transformer.h.{}.mlp.c_fc"},
    {"h.{}.mlp.c_proj", "transformer.h.{}.mlp.c_proj"},
    {"ln_f", "transformer.ln_f"},
    {"lm_head", "lm_head"},
};

constexpr Rule kLlamaRules[] = {
    {"wte", "model.embed_tokens"},
    {"h.{}.ln_1", "model.layers.{}.input_layernorm"},
    {"h.{}.attn.c_attn", "model.layers.{}.self_attn.q_proj", Part::kQueries},
    {"h.{}.attn.c_attn", "model.layers.{}.self_attn.k_proj", Part::kKeys},
    {"h.{}.attn.c_attn", "model.layers.{}.self_attn.v_proj", Part::kValues},
    {"h.{}.attn.c_proj", "model.layers.{}.self_attn.o_proj"},
    {"h.{}.ln_2", "model.layers.{}.post_attention_layernorm"},
    {"h.{}.mlp.c_fc", "model.layers.{}.mlp.gate_proj", Part::kGate},
    {"h.{}.mlp.c_fc", "model.layers.{}.mlp.up_proj", Part::kUp},
    {"h.{}.mlp.c_proj", "model.layers.{}.mlp.down_proj"},
    {"ln_f", "model.norm"},
    {"lm_head", "lm_head"},
};

constexpr Rule kBertRules[] = {
    {"wte", "bert.embeddings.word_embeddings"},
    {"wpe", "bert.embeddings.position_embeddings"},
    {"wtt", "bert.embeddings.token_type_embeddings"},
    {"ln_embedding", "bert.embeddings.LayerNorm"},
    {"h.{}.attn.c_attn", "bert.encoder.layer.{}.attention.self.query", Part::kQueries},
    {"h.{}.attn.c_attn", "bert.encoder.layer.{}.attention.self.key", Part::kKeys},
    {"h.{}.attn.c_attn", "bert.encoder.layer.{}.attention.self.value", Part::kValues},
    {"h.{}.attn.c_proj", "bert.encoder.layer.{}.attention.output.dense"},
    {"h.{}.ln_1", "bert.encoder.layer.{}.attention.output.LayerNorm"},
    {"h.{}.mlp.c_fc", "bert.encoder.layer.{}.intermediate.dense"},
    {"h.{}.mlp.c_proj", "bert.encoder.layer.{}.output.dense"},
    {"h.{}.ln_2", "bert.encoder.layer.{}.output.LayerNorm"},
    {"head.dense", "cls.predictions.transform.dense"},
    {"head.ln", "cls.predictions.transform.LayerNorm"},
    {"head", "cls.predictions"},
    {"lm_head", "cls.predictions.decoder"},
};

std::span<const Rule> RulesOf(ModelKind kind) {
  switch (kind) {
    case ModelKind::kGpt2:
      return kGpt2Rules;
    case ModelKind::kLlama:
      return kLlamaRules;
    default:
      return kBertRules;
  }
}

struct Columns {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

Columns ColumnsOf(const ModelDims& dims, Part part, std::int64_t all) {
  const std::int64_t keys = dims.KvHeads() * dims.HeadSize();
  switch (part) {
    case Part::kQueries:
      return {0, dims.AttentionColumns()};
    case Part::kKeys:
      return {dims.AttentionColumns(), keys};
    case Part::kValues:
      return {dims.AttentionColumns() + keys, keys};
    case Part::kGate:
      return {0, dims.Ffn()};
    case Part::kUp:
      return {dims.Ffn(), dims.Ffn()};
    default:
      return {0, all};
  }
}

/// "h.3.ln_1.weight" is "h.{}.ln_1", "3" and ".weight".
struct OurName {
  explicit OurName(std::string_view name) {
    const auto dot = name.rfind('.');
    suffix = name.substr(dot);
    stem = name.substr(0, dot);
    if (!stem.starts_with("h.")) return;
    const auto end = stem.find('.', 2);
    block = stem.substr(2, end - 2);
    stem = "h.{}" + stem.substr(end);
  }

  std::string stem, block, suffix;
};

HfTensor Tensor(const ModelDims& dims, const ParameterRange& range, const OurName& name,
                const Rule& rule) {
  const bool matrix = range.shape.size() == 2;
  HfTensor tensor;
  tensor.name = fmt::format(fmt::runtime(rule.theirs), name.block) + name.suffix;
  tensor.offset = range.offset;
  tensor.rows = matrix ? range.shape[0] : 1;
  tensor.row_length = range.shape.back();
  const Columns columns = ColumnsOf(dims, rule.part, tensor.row_length);
  tensor.first_column = columns.first;
  tensor.columns = columns.count;
  const bool embedding = rule.ours.starts_with("w") || rule.ours == "lm_head";
  tensor.transposed = matrix && !embedding && dims.kind != ModelKind::kGpt2;
  if (!matrix) {
    tensor.shape = {tensor.columns};
  } else if (tensor.transposed) {
    tensor.shape = {tensor.columns, tensor.rows};
  } else {
    tensor.shape = {tensor.rows, tensor.columns};
  }
  return tensor;
}

}  // namespace

void HfTensor::CopyOut(std::span<const float> arena, std::span<float> tensor) const {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      tensor[static_cast<std::size_t>(transposed ? c * rows + r : r * columns + c)] =
          arena[static_cast<std::size_t>(offset + r * row_length + first_column + c)];
    }
  }
}

void HfTensor::CopyIn(std::span<const float> tensor, std::span<float> arena) const {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      arena[static_cast<std::size_t>(offset + r * row_length + first_column + c)] =
          tensor[static_cast<std::size_t>(transposed ? c * rows + r : r * columns + c)];
    }
  }
}

std::vector<HfTensor> HfTensors(const ModelDims& dims, const ParameterLayout& layout) {
  std::vector<HfTensor> tensors;
  for (const ParameterRange& range : layout.ranges()) {
    const OurName name(range.name);
    [[maybe_unused]] const std::size_t before = tensors.size();
    for (const Rule& rule : RulesOf(dims.kind)) {
      if (rule.ours == name.stem) tensors.push_back(Tensor(dims, range, name, rule));
    }
    assert(tensors.size() > before);
  }
  return tensors;
}

std::vector<std::string> HfNamesOf(const std::string& name) {
  std::vector<std::string> names{name};
  for (const std::string_view prefix : {"transformer.", "model.", "bert."}) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  const auto norm = name.find("LayerNorm.");
  if (norm == std::string::npos) return names;
  const std::string old = name.ends_with(".weight") ? "gamma" : "beta";
  for (std::size_t i = 0, count = names.size(); i < count; ++i) {
    names.push_back(names[i].substr(0, names[i].rfind('.') + 1) + old);
  }
  return names;
}

}  // namespace adaptive_train
