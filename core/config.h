// The run's configuration: every key of examples/quickstart.toml, read from TOML and the command
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// An integer that the planner may choose: none = "auto".
using AutoInt = std::optional<std::int64_t>;

struct ModelConfig {
  std::string kind = "gpt2";
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  AutoInt kv_heads;
  std::int64_t hidden = 128;
  AutoInt ffn;  // width of the feed-forward
  std::int64_t sequence = 128;
  std::int64_t vocab = 256;
  bool tie_embeddings = true;
};

struct DataConfig {
  std::string train;                // path of the training text
  std::string validation = "auto";  // path, or auto: the last 5 % of train
  std::string format = "auto";
};

struct TrainConfig {
  std::int64_t steps = 100;
  std::int64_t global_batch = 16;  // sequences per optimizer step, over all ranks
  AutoInt micro_batch;             // sequences per forward and backward
  std::string precision = "fp32";
  std::int64_t seed = 1337;
  std::string recompute = "none";
  double dropout = 0;                    // probability
  std::int64_t validate_every = 0;       // steps; 0 = after the last step only
  std::int64_t validation_samples = 64;  // sequences per validation
};

struct OptimizerConfig {
  std::string kind = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double weight_decay = 0.1;
  std::int64_t warmup_steps = 10;
  std::string schedule = "cosine";
  double clip = 1.0;  // global gradient norm; 0 = off
};

struct ParallelConfig {
  AutoInt data, tensor, pipeline, interleave, shard;
  std::string shares = "auto";     // even: as many samples for every replica, whatever its speed
  std::string gather = "weights";  // what owners of shards send to all: int8: blocks of 8 bits
};

struct CompressionConfig {
  std::string mode = "off";
  double s_min = 0.7;  // sparsity: the share of a layer's elements that is not sent
  double s_max = 0.95;
  double density = 0.1;               // of topk, global-topk, sketch: the share that is
  std::string variance = "relative";  // what sets a layer's sparsity
  double beta = 1.0;
  std::int64_t flush_every = 1000;  // steps; 0 = never
  std::string flush = "send";
  std::string values = "bf16";
};

struct CheckpointConfig {
  std::string dir = "auto";    // auto: RUN_DIR/checkpoints
  std::string start = "none";  // checkpoint whose parameters a new run begins with; none: drawn
  std::int64_t every = 0;      // steps; 0 = only when asked or stopped, and at the end
  std::int64_t keep = 2;
  std::int64_t patience_s = 540;  // without a block written or read: a save or resume is given up
  std::vector<std::string>
      accept;  // settings that may differ from the checkpoint's, of kOrderSettings
};

/// Settings that checkpoint.accept may name: those on which the order of the samples depends.
inline constexpr const char* kOrderSettings[] = {"data.train", "train.global_batch", "train.seed"};

struct ProfileConfig {
  std::int64_t warmup_steps = 3;  // steps that time the layers; 0 = no step does
  std::string reuse = "auto";
  bool measure = true;  // links and devices, before the first step
  bool online = false;  // steps that stay slower later: time the layers and plan once more
};

struct DeviceConfig {
  std::string kind = "auto";
  AutoInt threads;  // CPU threads per rank
};

/// A whole configuration. A value: copied freely, no threads.
struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  CompressionConfig compression;
  CheckpointConfig checkpoint;
  ProfileConfig profile;
  DeviceConfig device;
};

/// The dimensions that a configuration asks for.
ModelDims DimsOf(const ModelConfig& model);
/// How it is to be trained, as far as memory depends on it.
TrainingFormat FormatOf(const TrainConfig& train);

/// Tokens that a text may use: BERT's mask is the last of the vocabulary.
std::int64_t TextVocab(const ModelConfig& model);

/// One `--section.key=value` of the command line: {"train.steps", "20"}.
using ConfigOverride = std::pair<std::string, std::string>;

/// Reads the TOML file at `path`, then applies `overrides` in their order, then checks the whole.
/// Relative data paths are taken from the file's folder when it comes from the file, and from the
/// working directory when it comes from the command line. Errors (one line, exit code 2): a missing
/// or unreadable file, a syntax error with its line, an unknown key with the nearest one, a wrong
/// type or value with what is allowed, sizes that cannot be, and what this version does not do yet.
Result<Config> LoadConfig(const std::string& path, const std::vector<ConfigOverride>& overrides);

/// The configuration as TOML with every key, as config.resolved.toml holds it. LoadConfig reads it
/// back to the same value.
std::string ToToml(const Config& config);

}  // namespace adaptive_train
