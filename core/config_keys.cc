#include "core/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/edit_distance.h"
#include "core/launch_settings.h"

namespace adaptive_train {
namespace {

/// The maximum of keys without one of their own.
constexpr std::int64_t kMostInteger = std::int64_t{1} << 40;

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

/// The shortest text that reads back to the same double, always with a point or an exponent. JSON's
/// form is valid TOML.
std::string Real(double value) { return nlohmann::json(value).dump(); }

template <class Section>
ConfigKey Integer(std::string path, Section Config::*section, std::int64_t Section::*field,
                  std::int64_t least, std::int64_t most = kMostInteger) {
  return {path,
          most == kMostInteger ? fmt::format("an integer, {} or more", least)
                               : fmt::format("an integer from {} to {}", least, most),
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<std::int64_t>();
            if (!v || *v < least || *v > most) return false;
            c.*section.*field = *v;
            return true;
          },
          [=](const Config& c) { return std::to_string(c.*section.*field); }};
}

template <class Section>
ConfigKey IntegerOrAuto(std::string path, Section Config::*section, AutoInt Section::*field,
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
ConfigKey Number(std::string path, Section Config::*section, double Section::*field, double least,
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
ConfigKey NumberOrAuto(std::string path, Section Config::*section,
                       std::optional<double> Section::*field, double least, double most) {
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
ConfigKey Text(std::string path, Section Config::*section, std::string Section::*field,
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
ConfigKey Choice(std::string path, Section Config::*section, std::string Section::*field,
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

/// A key whose value is a name of an enumeration in orders.h.
template <class Section, class Enum>
ConfigKey Choice(std::string path, Section Config::*section, Enum Section::*field) {
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
ConfigKey Boolean(std::string path, Section Config::*section, bool Section::*field) {
  return {path, "true or false",
          [=](Config& c, const toml::node& n) {
            auto v = n.value_exact<bool>();
            if (v) c.*section.*field = *v;
            return v.has_value();
          },
          [=](const Config& c) { return std::string(c.*section.*field ? "true" : "false"); }};
}

/// A name that `srun --mpi` takes.
ConfigKey MpiPlugin() {
  return {"launch.mpi",
          "\"pmix\", or a version of it that srun --mpi=list names, such as \"pmix_v4\"",
          [](Config& c, const toml::node& n) {
            const auto name = n.value_exact<std::string>();
            constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
            if (!name || !name->starts_with("pmix") || name->size() > 40 ||
                name->find_first_not_of(kAllowed) != std::string::npos)
              return false;
            c.launch.mpi = *name;
            return true;
          },
          [](const Config& c) { return Quoted(c.launch.mpi); }};
}

ConfigKey Betas() {
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

/// A single setting may stand without brackets.
ConfigKey AcceptedSettings() {
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

constexpr double kMostTflops = 1e6, kMostCopyGb = 1e6;
constexpr std::size_t kMostSpeeds = 256, kLongestModel = 200;

/// {model = "NVIDIA A100-SXM4-80GB", tflops = 15.5, copy_gb_per_s = 1400}
std::optional<KnownSpeed> SpeedFrom(const toml::node& node) {
  const toml::table* entry = node.as_table();
  if (entry == nullptr) return std::nullopt;
  const auto model = (*entry)["model"].value_exact<std::string>();
  const auto tflops = (*entry)["tflops"].value<double>();
  const auto copy = (*entry)["copy_gb_per_s"].value<double>();
  const bool has_copy = entry->contains("copy_gb_per_s");
  if (!model || model->empty() || model->size() > kLongestModel || !tflops ||
      has_copy != copy.has_value() || entry->size() != (has_copy ? 3U : 2U) ||
      !(*tflops > 0 && *tflops <= kMostTflops) ||
      (has_copy && !(*copy > 0 && *copy <= kMostCopyGb)))
    return std::nullopt;
  return KnownSpeed{*model, *tflops, copy.value_or(0)};
}

std::string ToToml(const KnownSpeed& speed) {
  std::string text =
      fmt::format("{{model = {}, tflops = {}", Quoted(speed.model), Real(speed.tflops));
  if (speed.copy_gb_per_s > 0)
    text += fmt::format(", copy_gb_per_s = {}", Real(speed.copy_gb_per_s));
  return text + "}";
}

ConfigKey KnownSpeeds() {
  return {
      "device.speeds",
      "a list such as [{model = \"NVIDIA A100-SXM4-80GB\", tflops = 15.5, copy_gb_per_s = 1400}], "
      "each model once",
      [](Config& c, const toml::node& n) {
        const toml::array* list = n.as_array();
        if (list == nullptr || list->size() > kMostSpeeds) return false;
        std::vector<KnownSpeed> speeds;
        for (const toml::node& node : *list) {
          const auto speed = SpeedFrom(node);
          if (!speed || std::ranges::find(speeds, speed->model, &KnownSpeed::model) != speeds.end())
            return false;
          speeds.push_back(*speed);
        }
        c.device.speeds = std::move(speeds);
        return true;
      },
      [](const Config& c) {
        std::string text = "[";
        for (const KnownSpeed& speed : c.device.speeds)
          text += (text.size() > 1 ? ", " : "") + ToToml(speed);
        return text + "]";
      }};
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  using C = Config;
  static const std::vector<ConfigKey> keys = {
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
      Choice("train.reproducible", &C::train, &TrainConfig::reproducible),
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
      Text("parallel.layout", &C::parallel, &ParallelConfig::layout,
           "\"auto\", or the stages' layers such as \"Et*3|(tt|)*2L\""),
      Choice("parallel.schedule", &C::parallel, &ParallelConfig::schedule,
             {"auto", "gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first", "pipedream-2bw",
              "list"}),
      IntegerOrAuto("parallel.shard", &C::parallel, &ParallelConfig::shard, 0, 2),
      Choice("parallel.shares", &C::parallel, &ParallelConfig::shares, {"auto", "even"}),
      Choice("parallel.gather", &C::parallel, &ParallelConfig::gather),
      Choice("compression.mode", &C::compression, &CompressionOrders::mode),
      Number("compression.s_min", &C::compression, &CompressionOrders::s_min, 0, kMostSparsity),
      Number("compression.s_max", &C::compression, &CompressionOrders::s_max, 0, kMostSparsity),
      Number("compression.density", &C::compression, &CompressionOrders::density, kLeastDensity, 1),
      Choice("compression.variance", &C::compression, &CompressionOrders::variance),
      Number("compression.beta", &C::compression, &CompressionOrders::beta, 0, 1),
      Integer("compression.flush_every", &C::compression, &CompressionOrders::flush_every, 0),
      Choice("compression.flush", &C::compression, &CompressionOrders::flush),
      Choice("compression.values", &C::compression, &CompressionOrders::values),
      Integer("compression.local_steps", &C::compression, &CompressionOrders::local_steps, 1),
      Text("checkpoint.dir", &C::checkpoint, &CheckpointConfig::dir,
           "the path of a folder, or \"auto\" for RUN_DIR/checkpoints"),
      Text("checkpoint.start", &C::checkpoint, &CheckpointConfig::start,
           "the path of a checkpoint's folder, or \"none\""),
      Integer("checkpoint.every", &C::checkpoint, &CheckpointConfig::every, 0),
      Number("checkpoint.every_minutes", &C::checkpoint, &CheckpointConfig::every_minutes, 0, 1e6),
      Integer("checkpoint.keep", &C::checkpoint, &CheckpointConfig::keep, 1),
      IntegerOrAuto("checkpoint.before_end_seconds", &C::checkpoint,
                    &CheckpointConfig::before_end_seconds, 0, 10'000'000),
      Integer("checkpoint.patience_s", &C::checkpoint, &CheckpointConfig::patience_s, 1,
              10'000'000),
      AcceptedSettings(),
      Integer("profile.warmup_steps", &C::profile, &ProfileConfig::warmup_steps, 0),
      Choice("profile.reuse", &C::profile, &ProfileConfig::reuse, {"auto", "never"}),
      Boolean("profile.measure", &C::profile, &ProfileConfig::measure),
      Boolean("profile.online", &C::profile, &ProfileConfig::online),
      IntegerOrAuto("launch.hello_seconds", &C::launch, &LaunchConfig::hello_seconds, 1, 86400),
      IntegerOrAuto("launch.fence_seconds", &C::launch, &LaunchConfig::fence_seconds, 1, 86400),
      IntegerOrAuto("launch.short_step_seconds", &C::launch, &LaunchConfig::short_step_seconds, 1,
                    86400),
      Number("launch.silence_seconds", &C::launch, &LaunchConfig::silence_seconds, 1, 600),
      Text("launch.interface", &C::launch, &LaunchConfig::interface,
           "the name of a network interface, or \"auto\" for all"),
      Text("launch.ports", &C::launch, &LaunchConfig::ports,
           "\"auto\", or \"FIRST-LAST\" with ports from 1 to 65535"),
      MpiPlugin(),
      Integer("recovery.attempts", &C::recovery, &RecoveryConfig::attempts, 0, 1000),
      Boolean("recovery.allow_injection", &C::recovery, &RecoveryConfig::allow_injection),
      Number("recovery.half_life_days", &C::recovery, &RecoveryConfig::half_life_days, 0.01, 3650),
      Choice("recovery.memory", &C::recovery, &RecoveryConfig::memory, {"auto", "off"}),
      IntegerOrAuto("recovery.memory_every", &C::recovery, &RecoveryConfig::memory_every, 1,
                    1'000'000),
      Choice("device.kind", &C::device, &DeviceConfig::kind, {"auto", "cpu", "cuda"}),
      IntegerOrAuto("device.threads", &C::device, &DeviceConfig::threads, 1, 4096),
      KnownSpeeds(),
  };
  return keys;
}

const ConfigKey* FindConfigKey(const std::string& path) {
  const auto& keys = ConfigKeys();
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.path == path; });
  return key == keys.end() ? nullptr : &*key;
}

std::string NearestConfigKey(const std::string& path,
                             const std::function<bool(const std::string&)>& wanted) {
  const ConfigKey* best = nullptr;
  for (const ConfigKey& key : ConfigKeys()) {
    if (!wanted(key.path)) continue;
    if (best == nullptr || EditDistance(key.path, path) < EditDistance(best->path, path))
      best = &key;
  }
  return best->path;
}

}  // namespace adaptive_train
