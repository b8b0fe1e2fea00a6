// The configuration of a run: every key of examples/quickstart.toml, read from TOML and the command
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model_shape.h"
#include "core/orders.h"
#include "core/profile.h"
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
  // The next keys are for llama only, except norm_epsilon.
  AutoInt head_size;
  std::string attention_bias = "auto";
  std::optional<double> norm_epsilon;  // none = "auto"
  double rope_base = kRopeBase;
  std::string rope_scaling = "none";
  double rope_factor = 8;  // this and the next three: for rope_scaling = "llama3"
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_sequence = 8192;  // tokens
  std::int64_t sliding_window = 0;             // tokens; 0 = none
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
  std::int64_t skip_limit = 50;          // skipped steps in a row that end the run; 0 = never
  Reproducible reproducible = Reproducible::kOff;
};

struct OptimizerConfig {
  std::string kind = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double weight_decay = 0.1;
  std::int64_t warmup_steps = 10;
  LrShape schedule = LrShape::kCosine;
  double clip = 1.0;  // global gradient norm; 0 = off
};

struct ParallelConfig {
  AutoInt data, tensor, pipeline, interleave, shard;
  std::string layout = "auto";    // the stages' layers as text (core/schedule/stage_layout.h)
  std::string schedule = "auto";  // of stages; otherwise a name of ScheduleKind
  std::string shares = "auto";    // even: the same number of samples for every replica
  GatherFormat gather = GatherFormat::kWeights;
};

struct CheckpointConfig {
  std::string dir = "auto";    // auto: RUN_DIR/checkpoints
  std::string start = "none";  // checkpoint with a new run's first parameters; none: random
  std::int64_t every = 0;     // steps; 0 = only by the clock, on request, on a stop, and at the end
  double every_minutes = 10;  // longest time between saves; 0 = no limit
  std::int64_t keep = 2;
  AutoInt before_end_seconds;     // a run saves and ends so long before its job's time; 0 = never
  std::int64_t patience_s = 540;  // time without progress after which a save or resume is given up
  std::vector<std::string> accept;  // those of kOrderSettings that may differ from the checkpoint's
};

/// Settings that checkpoint.accept may name. The order of the samples depends on them.
inline constexpr const char* kOrderSettings[] = {"data.train", "train.global_batch", "train.seed"};

struct ProfileConfig {
  std::int64_t warmup_steps = 3;  // first steps, in which layers are timed; 0 = none
  std::string reuse = "auto";
  bool measure = true;  // links and devices, before the first step
  bool online = false;  // if steps become slower for good: time the layers and plan again
};

/// How ranks start and find their launcher. Deadlines: none = derived from the number of ranks.
struct LaunchConfig {
  AutoInt hello_seconds;           // from the start of a step to the last rank's hello
  AutoInt fence_seconds;           // one PMIx fence, and the first sum
  AutoInt short_step_seconds;      // one command on every node
  double silence_seconds = 2.5;    // after which a rank is lost
  std::string interface = "auto";  // whose addresses ranks connect to; auto: all
  std::string ports = "auto";      // "FIRST-LAST" that the launcher listens on; auto: any
  std::string mpi = "pmix";        // srun's plugin by which ranks find each other
};

struct RecoveryConfig {
  std::int64_t attempts = 3;     // failures in a row, without a new step, that a run survives
  bool allow_injection = false;  // of faults, by run --inject
  double half_life_days = kFailureHalfLifeDays;  // of failures that count against nodes and links
  std::string memory = "auto";                   // "off": no copies of the state in memory
  AutoInt memory_every;                          // steps between them
};

/// What a site knows of a model of devices, until it is measured.
struct KnownSpeed {
  std::string model;         // as snapshots have it
  double tflops = 0;         // TFLOP/s of float32 matrix products, of a GPU or of one CPU
  double copy_gb_per_s = 0;  // 1e9 bytes copied per second, by the same; 0: not known
  bool operator==(const KnownSpeed&) const = default;
};

struct DeviceConfig {
  std::string kind = "auto";
  AutoInt threads;                 // CPU threads per rank
  std::vector<KnownSpeed> speeds;  // of models of devices, each once
};

/// A whole configuration. A value: copied freely, no threads.
struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  CompressionOrders compression;
  CheckpointConfig checkpoint;
  ProfileConfig profile;
  LaunchConfig launch;
  RecoveryConfig recovery;
  DeviceConfig device;
};

/// The dimensions that a configuration asks for.
ModelDims DimsOf(const ModelConfig& model);
/// The configuration that asks for these dimensions: DimsOf gives them again.
ModelConfig ConfigOf(const ModelDims& dims);
/// The training format, as far as memory depends on it.
TrainingFormat FormatOf(const TrainConfig& train);

/// The configuration's orders for the exchange.
ExchangeOrders OrdersOf(const Config& config);

/// The tokens that a text may use: all but BERT's mask, the last of the vocabulary.
std::int64_t TextVocab(const ModelConfig& model);

/// One `--section.key=value` of the command line: {"train.steps", "20"}.
using ConfigOverride = std::pair<std::string, std::string>;

/// Reads the TOML file at `path` over `defaults`, applies `overrides` in order, then checks the result. Relative
/// data paths start at the file's folder if they come from the file, and at the working directory
/// if they come from the command line. Errors (one line, exit code 2): a missing or unreadable
/// file, or a syntax error with its line. An unknown key, with the nearest one. A wrong type or
/// value, with what is allowed. Impossible sizes, and what this version cannot do yet.
Result<Config> LoadConfig(const std::string& path, const std::vector<ConfigOverride>& overrides,
                          const Config& defaults = {});

/// The configuration as TOML with every key, as in config.resolved.toml. LoadConfig reads it back
/// to the same value.
std::string ToToml(const Config& config);

}  // namespace adaptive_train
