#include "core/config.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/edit_distance.h"
#include "core/file_io.h"
#include "core/format_version.h"
#include "core/launch_settings.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxConfigBytes = 1 << 20;
/// Random numbers know their step in 32 bits.
constexpr std::int64_t kMostSteps = 4'000'000'000;

/// One key: how to read it into a Config and how to print it from one.
struct Key {
  std::string path;                                      // "train.steps"
  std::string allowed;                                   // "an integer, 1 or more"
  std::function<bool(Config&, const toml::node&)> read;  // false: not allowed
  std::function<std::string(const Config&)> print;
};

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// The shortest text that reads back to the same double, always with a point or an exponent: JSON's
/// form is TOML's.
std::string Real(double value) { return nlohmann::json(value).dump(); }

template <class Section>
Key Integer(std::string path, Section Config::*section, std::int64_t Section::*field,
            std::int64_t least) {
  return {path, fmt::format("an integer, {} or more", least),
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<std::int64_t>();
            if (!v || *v < least || *v > (std::int64_t{1} << 40)) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) { return std::to_string(c.*section.*field); }};
}

template <class Section>
Key IntegerOrAuto(std::string path, Section Config::*section, AutoInt Section::*field,
                  std::int64_t least, std::int64_t most) {
  return {path, fmt::format("\"auto\" or an integer from {} to {}", least, most),
          [=](Config& c, const toml::node& n) {
            if (n.value_exact<std::string>() == "auto") {
              c.*section.*field = std::nullopt;
              return true;
            }
            auto v = n.value_exact<std::int64_t>();
            if (!v || *v < least || *v > most) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) {
            const AutoInt& v = c.*section.*field;
            return v ? std::to_string(*v) : std::string("\"auto\"");
          }};
}

template <class Section>
Key Number(std::string path, Section Config::*section, double Section::*field, double least,
           double most) {
  return {path, fmt::format("a number from {} to {}", least, most),
          [=](Config& c, const toml::node& n) {
            if (!n.is_number()) return false;
            const double v = n.is_integer() ? static_cast<double>(*n.value_exact<std::int64_t>())
                                            : *n.value_exact<double>();
            if (!(v >= least && v <= most)) return false;
            c.*section.*field = v;
            return true;
          },
          [=](const Config& c) { return Real(c.*section.*field); }};
}

template <class Section>
Key NumberOrAuto(std::string path, Section Config::*section, std::optional<double> Section::*field,
                 double least, double most) {
  return {path, fmt::format("\"auto\" or a number from {} to {}", least, most),
          [=](Config& c, const toml::node& n) {
            if (n.value_exact<std::string>() == "auto") {
              c.*section.*field = std::nullopt;
              return true;
            }
            auto v = n.value<double>();
            if (!v || !(*v >= least && *v <= most)) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) {
            const std::optional<double>& v = c.*section.*field;
            return v ? Real(*v) : std::string("\"auto\"");
          }};
}

template <class Section>
Key Text(std::string path, Section Config::*section, std::string Section::*field,
         std::string allowed) {
  return {path, allowed,
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<std::string>();
            if (!v || v->empty()) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) { return Quoted(c.*section.*field); }};
}

template <class Section>
Key Choice(std::string path, Section Config::*section, std::string Section::*field,
           std::vector<std::string> choices) {
  return {path, fmt::format("one of \"{}\"", fmt::join(choices, "\", \"")),
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<std::string>();
            if (!v || std::find(choices.begin(), choices.end(), *v) == choices.end()) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) { return Quoted(c.*section.*field); }};
}

/// One of the names of an enumeration in orders.h.
template <class Section, class Enum>
Key Choice(std::string path, Section Config::*section, Enum Section::*field) {
  return {path, fmt::format("one of \"{}\"", fmt::join(NamesOf<Enum>(), "\", \"")),
          [=](Config& c, const toml::node& n) {
            const auto name = n.value_exact<std::string>();
            const auto choice = name ? ChoiceOf<Enum>(*name) : std::nullopt;
            if (choice) c.*section.*field = *choice;
            return choice.has_value();
          },
          [=](const Config& c) { return Quoted(NameOf(c.*section.*field)); }};
}

template <class Section>
Key Boolean(std::string path, Section Config::*section, bool Section::*field) {
  return {path, "true or false",
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<bool>();
            if (v) c.*section.*field = *v;
            return v.has_value();
          },
          [=](const Config& c) { return std::string(c.*section.*field ? "true" : "false"); }};
}

Key Betas() {
  return {"optimizer.betas", "two numbers from 0 to 0.999999, such as [0.9, 0.95]",
          [](Config& c, const toml::node& n) {
            const toml::array* a = n.as_array();
            if (a == nullptr || a->size() != 2) return false;
            auto first = (*a)[0].value<double>(), second = (*a)[1].value<double>();
            auto good = [](const std::optional<double>& v) {
              return v && *v >= 0 && *v <= 0.999999;
            };
            if (!good(first) || !good(second)) return false;
            c.optimizer.beta1 = *first;
            c.optimizer.beta2 = *second;
            return true;
          },
          [](const Config& c) {
            return fmt::format("[{}, {}]", Real(c.optimizer.beta1), Real(c.optimizer.beta2));
          }};
}

/// One setting may stand without brackets.
Key AcceptedSettings() {
  return {"checkpoint.accept", fmt::format("a list of \"{}\"", fmt::join(kOrderSettings, "\", \"")),
          [](Config& c, const toml::node& n) {
            toml::array list;
            if (const toml::array* a = n.as_array()) {
              list = *a;
            } else {
              list.push_back(n.value_or(std::string()));
            }
            c.checkpoint.accept.clear();
            for (const toml::node& entry : list) {
              const auto name = entry.value_exact<std::string>();
              if (!name || std::find(std::begin(kOrderSettings), std::end(kOrderSettings), *name) ==
                               std::end(kOrderSettings))
                return false;
              c.checkpoint.accept.push_back(*name);
            }
            return true;
          },
          [](const Config& c) {
            std::string text = "[";
            for (const std::string& name : c.checkpoint.accept)
              text += (text.size() > 1 ? ", " : "") + Quoted(name);
            return text + "]";
          }};
}

/// Every key, in the order in which it is printed.
const std::vector<Key>& Keys() {
  using C = Config;
  static const std::vector<Key> keys = {
      Choice("model.kind", &C::model, &ModelConfig::kind, {"gpt2", "llama", "bert"}),
      Integer("model.layers", &C::model, &ModelConfig::layers, 1),
      Integer("model.heads", &C::model, &ModelConfig::heads, 1),
      IntegerOrAuto("model.kv_heads", &C::model, &ModelConfig::kv_heads, 1, 1 << 16),
      Integer("model.hidden", &C::model, &ModelConfig::hidden, 1),
      IntegerOrAuto("model.ffn", &C::model, &ModelConfig::ffn, 1, 1 << 20),
      Integer("model.sequence", &C::model, &ModelConfig::sequence, 1),
      Integer("model.vocab", &C::model, &ModelConfig::vocab, 2),
      Boolean("model.tie_embeddings", &C::model, &ModelConfig::tie_embeddings),
      IntegerOrAuto("model.head_size", &C::model, &ModelConfig::head_size, 1, 1 << 16),
      Choice("model.attention_bias", &C::model, &ModelConfig::attention_bias,
             {"auto", "none", "qkv", "all"}),
      NumberOrAuto("model.norm_epsilon", &C::model, &ModelConfig::norm_epsilon, 1e-30, 0.1),
      Number("model.rope_base", &C::model, &ModelConfig::rope_base, 1, 1e12),
      Choice("model.rope_scaling", &C::model, &ModelConfig::rope_scaling, {"none", "llama3"}),
      Number("model.rope_factor", &C::model, &ModelConfig::rope_factor, 1, 1e6),
      Number("model.rope_low_freq_factor", &C::model, &ModelConfig::rope_low_freq_factor, 1e-6,
             1e6),
      Number("model.rope_high_freq_factor", &C::model, &ModelConfig::rope_high_freq_factor, 1e-6,
             1e6),
      Integer("model.rope_original_sequence", &C::model, &ModelConfig::rope_original_sequence, 1),
      Integer("model.sliding_window", &C::model, &ModelConfig::sliding_window, 0),
      Text("data.train", &C::data, &DataConfig::train, "the path of a file"),
      Text("data.validation", &C::data, &DataConfig::validation,
           "the path of a file, or \"auto\" for the last 5 % of data.train"),
      Choice("data.format", &C::data, &DataConfig::format,
             {"auto", "megatron", "llmc", "uint16", "bytes"}),
      Integer("train.steps", &C::train, &TrainConfig::steps, 1),
      Integer("train.global_batch", &C::train, &TrainConfig::global_batch, 1),
      IntegerOrAuto("train.micro_batch", &C::train, &TrainConfig::micro_batch, 1, 1 << 20),
      Choice("train.precision", &C::train, &TrainConfig::precision, {"fp32", "bf16", "fp16"}),
      Integer("train.seed", &C::train, &TrainConfig::seed, 0),
      Choice("train.recompute", &C::train, &TrainConfig::recompute,
             {"auto", "none", "selective", "full"}),
      Number("train.dropout", &C::train, &TrainConfig::dropout, 0, 0.99),
      Integer("train.validate_every", &C::train, &TrainConfig::validate_every, 0),
      Integer("train.validation_samples", &C::train, &TrainConfig::validation_samples, 1),
      Integer("train.skip_limit", &C::train, &TrainConfig::skip_limit, 0),
      Choice("optimizer.kind", &C::optimizer, &OptimizerConfig::kind, {"adamw"}),
      Number("optimizer.lr", &C::optimizer, &OptimizerConfig::lr, 0, 10),
      Betas(),
      Number("optimizer.weight_decay", &C::optimizer, &OptimizerConfig::weight_decay, 0, 10),
      Integer("optimizer.warmup_steps", &C::optimizer, &OptimizerConfig::warmup_steps, 0),
      Choice("optimizer.schedule", &C::optimizer, &OptimizerConfig::schedule),
      Number("optimizer.clip", &C::optimizer, &OptimizerConfig::clip, 0, 1e6),
      IntegerOrAuto("parallel.data", &C::parallel, &ParallelConfig::data, 1, 1 << 16),
      IntegerOrAuto("parallel.tensor", &C::parallel, &ParallelConfig::tensor, 1, 1 << 10),
      IntegerOrAuto("parallel.pipeline", &C::parallel, &ParallelConfig::pipeline, 1, 1 << 10),
      IntegerOrAuto("parallel.interleave", &C::parallel, &ParallelConfig::interleave, 1, 1 << 10),
      IntegerOrAuto("parallel.shard", &C::parallel, &ParallelConfig::shard, 0, 2),
      Choice("parallel.shares", &C::parallel, &ParallelConfig::shares, {"auto", "even"}),
      Choice("parallel.gather", &C::parallel, &ParallelConfig::gather),
      Choice("compression.mode", &C::compression, &CompressionOrders::mode),
      Number("compression.s_min", &C::compression, &CompressionOrders::s_min, 0, 0.9999),
      Number("compression.s_max", &C::compression, &CompressionOrders::s_max, 0, 0.9999),
      Number("compression.density", &C::compression, &CompressionOrders::density, 1e-4, 1),
      Choice("compression.variance", &C::compression, &CompressionOrders::variance),
      Number("compression.beta", &C::compression, &CompressionOrders::beta, 0, 1),
      Integer("compression.flush_every", &C::compression, &CompressionOrders::flush_every, 0),
      Choice("compression.flush", &C::compression, &CompressionOrders::flush),
      Choice("compression.values", &C::compression, &CompressionOrders::values),
      Text("checkpoint.dir", &C::checkpoint, &CheckpointConfig::dir,
           "the path of a folder, or \"auto\" for RUN_DIR/checkpoints"),
      Text("checkpoint.start", &C::checkpoint, &CheckpointConfig::start,
           "the path of a checkpoint's folder, or \"none\""),
      Integer("checkpoint.every", &C::checkpoint, &CheckpointConfig::every, 0),
      Number("checkpoint.every_minutes", &C::checkpoint, &CheckpointConfig::every_minutes, 0, 1e6),
      Integer("checkpoint.keep", &C::checkpoint, &CheckpointConfig::keep, 1),
      Integer("checkpoint.patience_s", &C::checkpoint, &CheckpointConfig::patience_s, 1),
      AcceptedSettings(),
      Integer("profile.warmup_steps", &C::profile, &ProfileConfig::warmup_steps, 0),
      Choice("profile.reuse", &C::profile, &ProfileConfig::reuse, {"auto", "never"}),
      Boolean("profile.measure", &C::profile, &ProfileConfig::measure),
      Boolean("profile.online", &C::profile, &ProfileConfig::online),
      IntegerOrAuto("launch.hello_seconds", &C::launch, &LaunchConfig::hello_seconds, 1, 86400),
      IntegerOrAuto("launch.fence_seconds", &C::launch, &LaunchConfig::fence_seconds, 1, 86400),
      IntegerOrAuto("launch.short_step_seconds", &C::launch, &LaunchConfig::short_step_seconds, 1,
                    86400),
      Text("launch.interface", &C::launch, &LaunchConfig::interface,
           "the name of a network interface, or \"auto\" for all"),
      Text("launch.ports", &C::launch, &LaunchConfig::ports,
           "\"auto\", or \"FIRST-LAST\" with ports from 1 to 65535"),
      Choice("device.kind", &C::device, &DeviceConfig::kind, {"auto", "cpu", "cuda"}),
      IntegerOrAuto("device.threads", &C::device, &DeviceConfig::threads, 1, 4096),
  };
  return keys;
}

const Key* FindKey(const std::string& path) {
  for (const Key& key : Keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

std::string NearestKey(const std::string& path) {
  const Key* best = &Keys().front();
  for (const Key& key : Keys()) {
    if (EditDistance(key.path, path) < EditDistance(best->path, path)) best = &key;
  }
  return best->path;
}

Result<void> ReadKey(Config& config, const std::string& path, const toml::node& node) {
  const Key* key = FindKey(path);
  if (key == nullptr) {
    return Fail(fmt::format("unknown key {}; the nearest is {}", path.substr(0, 80),
                            NearestKey(path.substr(0, 80))));
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
                              NearestKey(name)));
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
  // "128", "true" and "[0.9, 0.95]" are TOML values; a bare word is text. Clang before 16 captures
  // no structured binding by itself.
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
  const Key* key = FindKey(path);
  if (key != nullptr && key->read(config, word)) return {};
  auto done = ReadKey(config, path, *value);
  if (!done) return FailIn("--" + path, done.error());
  return {};
}

/// In floating point: dimensions may be too large to count in integers.
double RoughParameters(const ModelDims& dims) {
  const auto layers = static_cast<double>(dims.layers), hidden = static_cast<double>(dims.hidden);
  const double block = static_cast<double>(dims.QkvColumns() + dims.AttentionColumns() +
                                           dims.FfnColumns() + dims.Ffn());
  return layers * hidden * block + static_cast<double>(dims.vocab + dims.sequence) * hidden;
}

/// What the keys say together, and what this version cannot do: said here, never ignored.
Result<void> Check(const Config& c) {
  if (c.data.train.empty()) return Fail("data.train is missing: name the training text");
  const ModelDims dims = DimsOf(c.model);
  if (auto good = CheckDims(dims); !good) return good;
  if (c.data.format == "bytes" && TextVocab(c.model) < 256) {
    return Fail(
        fmt::format("model.vocab = {} is too small: bytes need 256, with bert 257", c.model.vocab));
  }
  if (auto ports = ParsePorts(c.launch.ports); !ports) return tl::unexpected(ports.error());
  if (c.train.steps > kMostSteps)
    return Fail(fmt::format("train.steps = {}: at most {} are counted", c.train.steps, kMostSteps));
  if (double parameters = RoughParameters(dims); parameters > 1e12)
    return Fail(
        fmt::format("the model would have {:.3g} parameters; the limit is 1e12", parameters));
  if (c.model.kind != "llama" && dims.KvHeads() != dims.heads) {
    return Fail(
        fmt::format("model.kv_heads = {}: {} has as many as model.heads = {}; llama may have fewer",
                    dims.KvHeads(), c.model.kind, dims.heads));
  }
  if (c.train.micro_batch && *c.train.micro_batch > c.train.global_batch) {
    return Fail(fmt::format("train.micro_batch = {} must not exceed train.global_batch = {}",
                            *c.train.micro_batch, c.train.global_batch));
  }
  if (c.compression.s_min > c.compression.s_max)
    return Fail("compression.s_min must not exceed compression.s_max");
  struct Limit {
    bool beyond;
    const char* text;
  };
  const bool int8 = c.parallel.gather == GatherFormat::kInt8;
  const Limit limits[] = {
      {int8 && c.parallel.shard.value_or(0) < 1,
       "parallel.gather = int8 needs a sharded optimizer: parallel.shard = 1 or 2"},
      {int8 && c.train.precision == "fp32",
       "parallel.gather = int8 needs train.precision = bf16 or fp16: in fp32 the weights are the "
       "parameters themselves"},
      {c.parallel.interleave.value_or(1) != 1,
       "parallel.interleave: this version neither plans nor runs interleaved stages (1)"},
      {c.device.kind == "cuda", "device.kind: this version trains on CPUs only (cpu)"},
  };
  for (const Limit& limit : limits) {
    if (limit.beyond) return Fail(limit.text);
  }
  return {};
}

/// Paths of what a file reads are relative to the file, so that a job can start anywhere.
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
  return {config.compression, config.parallel.gather};
}

std::int64_t TextVocab(const ModelConfig& model) {
  return model.vocab - (model.kind == "bert" ? 1 : 0);
}

TrainingFormat FormatOf(const TrainConfig& train) {
  TrainingFormat format;
  if (train.precision != "fp32")
    format.precision = train.precision == "bf16" ? Precision::kBf16 : Precision::kFp16;
  // "auto" is the planner's choice, which the plan holds.
  if (train.recompute == "selective" || train.recompute == "full")
    format.recompute = train.recompute == "full" ? Recompute::kFull : Recompute::kSelective;
  format.dropout = train.dropout > 0;
  return format;
}

Result<Config> LoadConfig(const std::string& path, const std::vector<ConfigOverride>& overrides) {
  auto text = ReadFile(path, kMaxConfigBytes);
  if (!text) return tl::unexpected(text.error());
  Config config;
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
  for (const Key& key : Keys()) {
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
