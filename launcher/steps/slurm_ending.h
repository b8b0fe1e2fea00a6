// What Slurm's commands know of how a job ended. Their output is untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "db/records.h"

namespace adaptive_train {

/// A job as squeue shows it; times in seconds since 1970.
struct QueuedJob {
  std::string state;          // "RUNNING", "TIMEOUT"
  std::string reason;         // "TimeLimit"; may be "None"
  std::int64_t restarts = 0;  // how often it was requeued
  double submit_time = 0;
  std::optional<double> end_time;
};

/// The job in the output of `squeue --Format` with kQueueFormat; none: it has no line of that job.
std::optional<QueuedJob> QueuedJobFrom(std::string_view output, std::int64_t job_id);
/// Columns of fixed width: nothing that a user can name is among them.
inline constexpr const char* kQueueFormat =
    "JobID:20,State:20,RestartCnt:10,SubmitTime:22,EndTime:22,Reason:60";

/// The state of the run that began at `start_time`, in the output of `sacct --parsable2
/// --duplicates --format=State,Start,End,NodeList` with times in seconds since 1970: one line a
/// run, also of jobs that had the number before it was counted from 1 again. Empty: there is none.
std::string AccountedState(std::string_view output, double start_time);

/// How one run of a job in Slurm ended.
struct SlurmEnding {
  JobState state = JobState::kRunning;  // kRunning: it has not, or that is not known yet
  std::string slurm_state;              // Slurm's word; "UNKNOWN": Slurm has forgotten the job
  std::optional<double> end_time;
  std::string reason;  // one line, for people
};

/// What `queued` (none: Slurm has forgotten the job) and accounting's word for the run (empty:
/// none) say of the run that began at `start_time` as number `restart` of its job.
SlurmEnding EndingOf(const std::optional<QueuedJob>& queued, const std::string& accounted,
                     std::int64_t restart, double start_time);

/// Asks squeue and, where the job's run is over, sacct, as the calling user, for 5 s each at most.
/// Fails where Slurm does not answer.
Result<SlurmEnding> AskSlurm(std::int64_t job_id, std::int64_t restart, double start_time);

/// ClusterName of the Slurm that answers here. Runs scontrol, for 5 s at most.
Result<std::string> SlurmClusterName();

}  // namespace adaptive_train
