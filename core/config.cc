#include "core/config.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/asked_layout.h"
#include "core/config_keys.h"
#include "core/file_io.h"
#include "core/format_version.h"
#include "core/launch_settings.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxConfigBytes = 1 << 20;
/// Random numbers store the step in 32 bits.
constexpr std::int64_t kMostSteps = 4'000'000'000;

Result<void> ReadKey(Config& config, const std::string& path, const toml::node& node) {
  const ConfigKey* key = FindConfigKey(path);
  if (key == nullptr) {
    return Fail(fmt::format("unknown key {}; the nearest is {}", path.substr(0, 80),
                            NearestConfigKey(path.substr(0, 80))));
  }
  if (!key->read(config, node)) return Fail(fmt::format("{} must be {}", path, key->allowed));
  return {};
}

Result<void> ReadTable(Config& config, const toml::table& table) {
  for (const auto& [section_name, section] : table) {
    const std::string name(section_name.str());
    if (name == "format_version") {
      auto version = section.value_exact<std::int64_t>();
      if (!version || *version < 1) return Fail("format_version must be an integer, 1 or more");
      if (*version > kFormatVersion) {
        return Fail(fmt::format("format_version {} is newer than this program reads ({})", *version,
                                kFormatVersion));
      }
      continue;
    }
    const toml::table* keys = section.as_table();
    if (keys == nullptr) {
      return Fail(fmt::format("unknown key {} outside of a section; the nearest is {}", name,
                              NearestConfigKey(name)));
    }
    for (const auto& [key_name, node] : *keys) {
      auto done = ReadKey(config, name + "." + std::string(key_name.str()), node);
      if (!done) {
        const auto line = node.source().begin.line;
        return Fail(line ? fmt::format("line {}: {}", line, done.error().message)
                         : done.error().message);
      }
    }
  }
  return {};
}

Result<void> ApplyOverride(Config& config, const ConfigOverride& item) {
  const auto& [path, text] = item;
  // "128", "true" and "[0.9, 0.95]" are TOML values; a bare word is text. The capture has a name
  // since Clang before 16 cannot capture a structured binding.
  auto parsed = [&text = text]() -> toml::table {
    try {
      return toml::parse("v = " + text);
    } catch (const toml::parse_error&) {
      return toml::table{{"v", text}};
    }
  }();
  const toml::node* value = parsed.get("v");
  if (value == nullptr || parsed.size() != 1) return Fail(fmt::format("--{}: not a value", path));
  toml::value<std::string> word(text);
  const ConfigKey* key = FindConfigKey(path);
  if (key != nullptr && key->read(config, word)) return {};
  auto done = ReadKey(config, path, *value);
  if (!done) return FailIn("--" + path, done.error());
  return {};
}

/// In floating point, since dimensions may be too large for integers.
double RoughParameters(const ModelDims& dims) {
  const auto layers = static_cast<double>(dims.layers), hidden = static_cast<double>(dims.hidden);
  const double block = static_cast<double>(dims.QkvColumns() + dims.AttentionColumns() +
                                           dims.FfnColumns() + dims.Ffn());
  return layers * hidden * block + static_cast<double>(dims.vocab + dims.sequence) * hidden;
}

/// Backward comes in halves, and a rank has one chunk.
bool HasHalvesOnly(const ParallelConfig& parallel) {
  return parallel.schedule == "zb-h1" || parallel.schedule == "list";
}

bool HasOneChunk(const ParallelConfig& parallel) {
  return parallel.schedule == "gpipe" || parallel.schedule == "1f1b" ||
         parallel.schedule == "pipedream-2bw" || HasHalvesOnly(parallel);
}

Result<void> CheckModel(const Config& c) {
  const ModelDims dims = DimsOf(c.model);
  if (auto good = CheckDims(dims); !good) return good;
  if (c.data.format == "bytes" && TextVocab(c.model) < 256) {
    return Fail(
        fmt::format("model.vocab = {} is too small: bytes need 256, with bert 257", c.model.vocab));
  }
  if (double parameters = RoughParameters(dims); parameters > 1e12)
    return Fail(
        fmt::format("the model would have {:.3g} parameters; the limit is 1e12", parameters));
  if (c.model.kind != "llama" && dims.KvHeads() != dims.heads) {
    return Fail(
        fmt::format("model.kv_heads = {}: {} has as many as model.heads = {}; llama may have fewer",
                    dims.KvHeads(), c.model.kind, dims.heads));
  }
  return {};
}

/// Keys that exclude each other.
Result<void> CheckTogether(const Config& c) {
  struct Limit {
    bool beyond;
    const char* text;
  };
  const bool any_layout = c.train.reproducible == Reproducible::kLayout;
  const bool int8 = c.parallel.gather == GatherFormat::kInt8;
  const Limit limits[] = {
      {int8 && c.parallel.shard.value_or(0) < 1,
       "parallel.gather = int8 needs a sharded optimizer: parallel.shard = 1 or 2"},
      {int8 && c.train.precision == "fp32",
       "parallel.gather = int8 needs train.precision = bf16 or fp16: in fp32 the weights are the "
       "parameters themselves"},
      {c.parallel.interleave.value_or(1) > 1 && HasOneChunk(c.parallel),
       "parallel.interleave above 1 needs parallel.schedule = \"interleaved\", \"breadth-first\" "
       "or \"auto\": other schedules have one chunk per rank"},
      {HasHalvesOnly(c.parallel) && c.train.recompute != "none" && c.train.recompute != "auto",
       "parallel.schedule = \"zb-h1\" or \"list\" needs train.recompute = \"none\": the second "
       "half of backward reads what recomputation drops"},
      {any_layout && c.parallel.schedule == "pipedream-2bw",
       "train.reproducible = layout needs another parallel.schedule than \"pipedream-2bw\", whose "
       "gradients are of weights that lack an update"},
      {c.parallel.schedule == "pipedream-2bw" && c.train.precision == "fp16",
       "parallel.schedule = \"pipedream-2bw\" needs train.precision = fp32 or bf16: the scale of "
       "the "
       "loss would change within a step"},
      {any_layout && c.train.precision != "fp32",
       "train.reproducible = layout needs train.precision = fp32"},
      {any_layout && c.compression.mode != CompressionMode::kOff &&
           c.compression.mode != CompressionMode::kAuto,
       "train.reproducible = layout needs compression.mode = off: what is held back depends on who "
       "held it"},
      {any_layout && !c.train.micro_batch,
       "train.reproducible = layout needs train.micro_batch as a number: its gradients are summed "
       "by themselves"},
      {any_layout && c.train.global_batch % c.train.micro_batch.value_or(1) != 0,
       "train.reproducible = layout needs train.global_batch to be a multiple of "
       "train.micro_batch"},
  };
  for (const Limit& limit : limits) {
    if (limit.beyond) return Fail(limit.text);
  }
  return {};
}

/// Replicas whose states differ within a round are whole: `layout` is the one asked for, if any.
Result<void> CheckLocalSteps(const Config& c, const std::optional<AskedLayout>& layout) {
  if (c.compression.mode != CompressionMode::kLocal) return {};
  if (c.parallel.pipeline.value_or(1) > 1 || c.parallel.tensor.value_or(1) > 1 ||
      c.parallel.shard.value_or(0) > 0 || c.parallel.schedule == "pipedream-2bw") {
    return Fail(
        "compression.mode = \"local\" needs whole replicas: no stages, tensor ranks, shards or "
        "older weights (parallel.pipeline, tensor, shard, schedule)");
  }
  if (layout && layout->pipeline > 1)
    return Fail("compression.mode = \"local\" needs whole replicas: parallel.layout of one stage");
  return {};
}

/// Checks combinations of keys, and refuses what this version cannot do.
Result<void> Check(const Config& c) {
  if (c.data.train.empty()) return Fail("data.train is missing: name the training text");
  if (auto good = CheckModel(c); !good) return good;
  if (auto ports = ParsePorts(c.launch.ports); !ports) return tl::unexpected(ports.error());
  if (c.train.steps > kMostSteps)
    return Fail(fmt::format("train.steps = {}: at most {} are counted", c.train.steps, kMostSteps));
  if (c.train.micro_batch && *c.train.micro_batch > c.train.global_batch) {
    return Fail(fmt::format("train.micro_batch = {} must not exceed train.global_batch = {}",
                            *c.train.micro_batch, c.train.global_batch));
  }
  if (c.compression.values == ValueEncoding::kInt4 && HoldsBack(c.compression.mode) &&
      !SendsAll(c.compression))
    return Fail(
        "compression.values = \"int4\" is for all elements: compression.mode must be \"auto\", or "
        "\"topk\" with compression.density = 1");
  if (c.compression.s_min > c.compression.s_max)
    return Fail("compression.s_min must not exceed compression.s_max");
  if (auto good = CheckTogether(c); !good) return good;
  const auto layout = AskedLayoutOf(c);
  if (!layout) return tl::unexpected(layout.error());
  return CheckLocalSteps(c, *layout);
}

/// Paths in a file are relative to the file, so that a job can start anywhere.
void ResolvePaths(Config& config, const std::filesystem::path& folder) {
  for (std::string* path :
       {&config.data.train, &config.data.validation, &config.checkpoint.start}) {
    if (path->empty() || *path == "auto" || *path == "none") continue;
    *path = (folder / *path).lexically_normal().string();
  }
}

AttentionBias BiasOf(const std::string& text) {
  for (const AttentionBias bias :
       {AttentionBias::kNone, AttentionBias::kQkv, AttentionBias::kAll}) {
    if (text == ToString(bias)) return bias;
  }
  return AttentionBias::kOfKind;
}

RopeScaling ScalingOf(const ModelConfig& model) {
  if (model.rope_scaling == "none") return {};
  return {.factor = model.rope_factor,
          .low_freq_factor = model.rope_low_freq_factor,
          .high_freq_factor = model.rope_high_freq_factor,
          .original_sequence = model.rope_original_sequence};
}

}  // namespace

ModelDims DimsOf(const ModelConfig& model) {
  const ModelKind kind = model.kind == "llama"  ? ModelKind::kLlama
                         : model.kind == "bert" ? ModelKind::kBert
                                                : ModelKind::kGpt2;
  return {.layers = model.layers,
          .heads = model.heads,
          .hidden = model.hidden,
          .sequence = model.sequence,
          .vocab = model.vocab,
          .tie_embeddings = model.tie_embeddings,
          .kind = kind,
          .kv_heads = model.kv_heads.value_or(0),
          .ffn = model.ffn.value_or(0),
          .head_size = model.head_size.value_or(0),
          .attention_bias = BiasOf(model.attention_bias),
          .norm_epsilon = model.norm_epsilon.value_or(0),
          .rope_base = model.rope_base,
          .rope_scaling = ScalingOf(model),
          .sliding_window = model.sliding_window};
}

ModelConfig ConfigOf(const ModelDims& dims) {
  ModelConfig model;
  model.kind = ToString(dims.kind);
  model.layers = dims.layers;
  model.heads = dims.heads;
  model.kv_heads = dims.KvHeads();
  model.hidden = dims.hidden;
  model.ffn = dims.Ffn();
  model.sequence = dims.sequence;
  model.vocab = dims.vocab;
  model.tie_embeddings = dims.tie_embeddings;
  if (dims.head_size != 0) model.head_size = dims.head_size;
  model.attention_bias = ToString(dims.attention_bias);
  if (dims.norm_epsilon != 0) model.norm_epsilon = dims.norm_epsilon;
  model.rope_base = dims.rope_base;
  model.sliding_window = dims.sliding_window;
  if (dims.rope_scaling.factor == 1) return model;
  model.rope_scaling = "llama3";
  model.rope_factor = dims.rope_scaling.factor;
  model.rope_low_freq_factor = dims.rope_scaling.low_freq_factor;
  model.rope_high_freq_factor = dims.rope_scaling.high_freq_factor;
  model.rope_original_sequence = dims.rope_scaling.original_sequence;
  return model;
}

ExchangeOrders OrdersOf(const Config& config) {
  ExchangeOrders orders{
      config.compression,
      config.parallel.gather,
      config.train.reproducible,
      {config.recovery.memory == "auto", config.recovery.memory_every.value_or(0)}};
  // Where that pays on GPUs was never measured.
  const bool whole =
      config.device.kind == "cuda" && orders.compression.mode == CompressionMode::kAuto;
  CompressionOrders& compression = orders.compression;
  if (compression.values == ValueEncoding::kAuto)
    compression.values =
        compression.mode == CompressionMode::kAuto ? ValueEncoding::kInt4 : ValueEncoding::kBf16;
  if (orders.AnyLayout() || whole) compression.mode = CompressionMode::kOff;
  return orders;
}

std::int64_t TextVocab(const ModelConfig& model) {
  return model.vocab - (model.kind == "bert" ? 1 : 0);
}

TrainingFormat FormatOf(const TrainConfig& train) {
  TrainingFormat format;
  if (train.precision != "fp32")
    format.precision = train.precision == "bf16" ? Precision::kBf16 : Precision::kFp16;
  // "auto" is left to the planner, and the plan holds its choice.
  if (train.recompute == "selective" || train.recompute == "full")
    format.recompute = train.recompute == "full" ? Recompute::kFull : Recompute::kSelective;
  format.dropout = train.dropout > 0;
  return format;
}

Result<Config> LoadConfig(const std::string& path, const std::vector<ConfigOverride>& overrides,
                          const Config& defaults) {
  auto text = ReadFile(path, kMaxConfigBytes);
  if (!text) return tl::unexpected(text.error());
  Config config = defaults;
  try {
    auto done = ReadTable(config, toml::parse(*text));
    if (!done) return FailIn(path, done.error());
  } catch (const toml::parse_error& error) {
    return Fail(
        fmt::format("{}: line {}: {}", path, error.source().begin.line, error.description()));
  }
  std::error_code ignored;
  const auto here = std::filesystem::current_path(ignored);
  ResolvePaths(config, (here / path).parent_path());
  for (const ConfigOverride& item : overrides) {
    auto done = ApplyOverride(config, item);
    if (!done) return tl::unexpected(done.error());
  }
  ResolvePaths(config, here);
  auto good = Check(config);
  if (!good) return FailIn(path, good.error());
  return config;
}

std::string ToToml(const Config& config) {
  std::string out = fmt::format("format_version = {}\n", kFormatVersion);
  std::string section;
  for (const ConfigKey& key : ConfigKeys()) {
    const auto dot = key.path.find('.');
    if (key.path.substr(0, dot) != section) {
      section = key.path.substr(0, dot);
      out += fmt::format("\n[{}]\n", section);
    }
    out += fmt::format("{} = {}\n", key.path.substr(dot + 1), key.print(config));
  }
  return out;
}

}  // namespace adaptive_train
