// What a job carries from its submission to its nodes: the options of --adaptive-train, and where a
// node's snapshot lies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// The options of `--adaptive-train=key=value,...`; without a value an option has the first one
/// listed.
struct JobOptions {
  enum class Reuse {
    kAuto,
    kNever
  };  // stored profiles of links and layers: where fresh, or not at all
  enum class Compress {
    kAuto,
    kOff
  };  // gradient compression: where the plan gains by it, or not at all
  enum class Log { kInfo, kDebug };

  Reuse reuse = Reuse::kAuto;
  int spares = 0;  // nodes kept aside for failures, 0 to kMaxSpares
  Compress compress = Compress::kAuto;
  Log log = Log::kInfo;

  bool operator==(const JobOptions&) const = default;
};

inline constexpr int kMaxSpares = 1024;

/// Environment of sbatch, salloc and srun: turns the option on with this value. Environment of the
/// job: the normalized options that it runs with; absent where the option is off.
inline constexpr char kJobOptionsVariable[] = "ADAPTIVE_TRAIN_OPTIONS";

/// Reads the text behind `--adaptive-train=`, which comes from users and is believed in nothing.
/// Empty text and
/// "(null)", which Slurm makes of an absent value, are the defaults. Fails in one line that names
/// the offending part (escaped, shortened) and says what is allowed.
Result<JobOptions> ParseJobOptions(std::string_view text);

/// All keys with their values, in one fixed order: "reuse=auto,spares=0,compress=auto,log=info".
std::string FormatJobOptions(const JobOptions& options);

/// The folder that holds one folder for each job on this node, and the name of the snapshot in it.
inline constexpr char kSnapshotRoot[] = "/run/adaptive-train";
inline constexpr char kSnapshotFile[] = "node.json";

/// Where the prolog leaves this node's snapshot for a job: /run/adaptive-train/JOBID/node.json.
std::string SnapshotPath(std::uint32_t job_id);

}  // namespace adaptive_train
