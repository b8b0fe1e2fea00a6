// What a job carries from submission to its nodes: the options of --adaptive-train, and the path of
// a node's snapshot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// The options of `--adaptive-train=key=value,...`; the first listed value is the default.
struct JobOptions {
  enum class Reuse {
    kAuto,
    kNever
  };  // stored profiles of links and layers: used where fresh, or never
  enum class Compress {
    kAuto,
    kOff
  };  // gradient compression: used where the plan gains from it, or never
  enum class Log { kInfo, kDebug };

  Reuse reuse = Reuse::kAuto;
  int spares = 0;  // nodes kept for failures, 0 to kMaxSpares
  Compress compress = Compress::kAuto;
  Log log = Log::kInfo;

  bool operator==(const JobOptions&) const = default;
};

inline constexpr int kMaxSpares = 1024;

/// For sbatch, salloc and srun: turns the option on with this value. Inside the job: the normalized
/// options of the job; absent if the option is off.
inline constexpr char kJobOptionsVariable[] = "ADAPTIVE_TRAIN_OPTIONS";

/// Parses the text after `--adaptive-train=`, which is untrusted. Empty text and "(null)", which
/// Slurm passes for an absent value, mean the defaults. Fails in one line that names the wrong part
/// (escaped, shortened) and says what is allowed.
Result<JobOptions> ParseJobOptions(std::string_view text);

/// All keys with their values, in a fixed order: "reuse=auto,spares=0,compress=auto,log=info".
std::string FormatJobOptions(const JobOptions& options);

/// The folder with one folder per job on this node, and the name of the snapshot in it.
inline constexpr char kSnapshotRoot[] = "/run/adaptive-train";
inline constexpr char kSnapshotFile[] = "node.json";

/// The path of this node's snapshot from the prolog: /run/adaptive-train/JOBID/node.json.
std::string SnapshotPath(std::uint32_t job_id);

}  // namespace adaptive_train
