// The content of the profile store as plain structs: one for each table, and the rows that queries
// return.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/failure_kind.h"
#include "db/launcher_process.h"

namespace adaptive_train {

/// All times here are UTC in seconds since 1970, with fractions.
using EpochSeconds = double;

/// The state of a job. No run stores kLost: a kRunning row is shown as kLost once its launcher is
/// gone, and made so where Slurm has forgotten the job.
enum class JobState {
  kRunning,
  kCompleted,
  kFailed,
  kCancelled,
  kTimeout,
  kNodeFail,
  kOutOfMemory,
  kPreempted,
  kRequeued,
  kLost,
};

/// All states in the order of the enumeration.
const std::vector<JobState>& AllJobStates();
/// Slurm's long and short words, such as "NODE_FAIL" and "NF".
std::string_view ToString(JobState state);
std::string_view ShortName(JobState state);
/// Accepts long and short names in any case; none if the name is unknown.
std::optional<JobState> JobStateFromString(std::string_view name);

/// One run of the launcher. (cluster, slurm_job_id, restart_count, submit_time) identify the Slurm
/// job. A batch script that runs the launcher several times gets one row each, distinguished by the
/// run number that the store assigns.
struct JobRecord {
  std::string cluster;            // Slurm's ClusterName, or the host's name without Slurm
  std::int64_t slurm_job_id = 0;  // 0: a local run without Slurm
  std::optional<std::int64_t> array_job_id, array_task_id;  // both or none: a task of an array
  std::int64_t restart_count = 0;                           // SLURM_RESTART_COUNT
  EpochSeconds submit_time = 0;                             // of a local run: its start
  std::string user;
  std::string account;  // of Slurm, that the job is charged to; empty: none is known
  std::string name;
  std::string run_dir;  // absolute path
  std::string config;   // config.resolved.toml as text
  std::string options;  // text of --adaptive-train
  std::string adaptive_train_version;
  EpochSeconds start_time = 0;
  std::optional<LauncherProcess> launcher;  // none: the process that calls BeginJob
  std::string uid;                          // NewRunUid(); empty: the run writes no ledger
};

/// 32 random hexadecimal digits, unique to the run.
std::string NewRunUid();
bool IsRunUid(const std::string& text);

struct NodeRecord {
  std::string name;
  std::string source;  // who ran the probe: "prolog" or "user"
  std::string cpu_model;
  std::int64_t cores = 0;  // physical cores the job may use
  std::int64_t memory_bytes = 0;
  std::string snapshot;  // the node's JSON as the probe wrote it
};

struct PlanRecord {
  std::string plan;  // plan.json as text
  std::int64_t ranks = 0;
  std::optional<double> predicted_step_s;
  std::string why;  // why this plan, one line
};

/// The outcome of one attempt to start the ranks of a job step.
enum class LaunchOutcome { kOk, kRetried, kFailed };
/// "ok", "retried", "failed".
std::string_view ToString(LaunchOutcome outcome);
std::optional<LaunchOutcome> LaunchOutcomeFromString(std::string_view name);

struct LaunchRecord {
  std::int64_t attempt = 0;  // counted from 1 through the whole job
  EpochSeconds started = 0;
  LaunchOutcome outcome = LaunchOutcome::kOk;
  std::string reason;  // why it was retried or failed; empty on success
};

struct FailureRecord {
  EpochSeconds time = 0;
  std::optional<std::int64_t> step;  // optimizer step; none before the first
  std::optional<std::int64_t> rank;  // none: no single rank
  std::string host;
  FailureKind kind = FailureKind::kUnknown;
  std::string operation;  // what the rank was doing, e.g. "all_reduce"
  std::string peer;       // the other side of the operation; may be empty
  std::string cause;
  std::string peer_host = {};       // of `peer`; may be empty
  Blamed blamed = Blamed::kNobody;  // kNode: `host`; kLink: that between `host` and `peer_host`
};

/// How a job ended. `state` is neither kRunning nor kLost.
struct JobEnd {
  JobState state = JobState::kCompleted;
  int exit_code = 0;
  EpochSeconds end_time = 0;
  std::string reason;  // the error in one line; empty on success
};

/// How a job ended whose launcher has not said so, or did not know.
struct FoundEnd {
  JobState state = JobState::kLost;
  EpochSeconds end_time = 0;
  std::string reason;       // one line
  std::string slurm_state;  // Slurm's word
};

/// The results of a run. A value that is not a number (a diverged loss) is stored as none.
struct SummaryRecord {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::optional<double> final_loss;
  std::optional<double> validation_loss;
  std::optional<double> tokens_per_s;  // of all ranks together
  std::optional<double> mean_step_s;
  std::optional<double> robustness;  // 1 - std(step_s) / mean(step_s)
  std::optional<double> mfu;         // against the devices' measured product peaks
  std::int64_t grad_bytes = 0;       // payload sent, summed over ranks and steps
  std::int64_t param_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::int64_t peak_memory_bytes = 0;  // of the largest rank
  // Of the last plan:
  std::optional<std::int64_t> micro_batches;  // of a step, of the replica with most
  std::optional<double> predicted_step_s;
  std::optional<double> plan_step_s;  // measured: the median after the warm-up
};

/// One job as FindJobs returns it.
struct JobRow {
  std::int64_t id = 0;
  std::int64_t run_number = 0;          // 0 for the first run of the launcher in a Slurm job
  JobRecord job;                        // job.launcher is always set
  JobState state = JobState::kRunning;  // as stored
  std::optional<EpochSeconds> end_time;
  std::optional<std::int64_t> exit_code;
  std::string reason;              // of the end, one line; may be empty
  std::int64_t ranks = 0;          // of the last plan; 0 without one
  std::vector<std::string> nodes;  // names, in the order they were saved in
  std::optional<SummaryRecord> summary;
  std::int64_t failures = 0;  // slow nodes are none
  std::int64_t launches = 0;
  std::int64_t launch_retries = 0;  // launches with outcome "retried"
  std::string slurm_state;          // what Slurm has said of its end, found out later; may be empty
};

/// How people name a job: a Slurm job id, an array's id (all its tasks), a task of an array, or the
/// store's id of a local run.
struct JobKey {
  bool local = false;
  std::int64_t id = 0;
  std::optional<std::int64_t> task = std::nullopt;  // of the array `id`

  bool operator==(const JobKey&) const = default;
};

/// "123" for a Slurm job, "120_3" for a task of an array, "L12" for a local run.
std::string ShownJobId(const JobRow& row);

/// Selects jobs: all conditions must hold. An empty list is no condition, except for `users`.
struct JobQuery {
  std::vector<JobKey> ids;
  bool all_users = false;
  std::vector<std::string> users;      // names; looked at unless all_users
  std::optional<EpochSeconds> start;   // jobs that were still running then, or began later
  std::optional<EpochSeconds> end;     // jobs that began no later
  std::vector<JobState> states;        // as stored; kLost finds nothing
  std::optional<std::int64_t> newest;  // so many of those that began last; none: all
  bool configs = false;                // with the text of each one's configuration
};

}  // namespace adaptive_train
