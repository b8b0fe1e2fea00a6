// What Slurm is asked about when users tell of their jobs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"
#include "db/records.h"
#include "db/store_message.h"

namespace adaptive_train {

/// Whose is the job, where does it run, and to what account is it charged? A requeued one is
/// another.
struct JobQuestion {
  std::int64_t slurm_job_id = 0, restart_count = 0;
  auto operator<=>(const JobQuestion&) const = default;
};
/// Did the node go down at about this time, in which a user's job failed there?
struct NodeQuestion {
  std::string node;
  std::int64_t time = 0;  // in seconds since 1970
  auto operator<=>(const NodeQuestion&) const = default;
};
using SlurmQuestion = std::variant<JobQuestion, NodeQuestion>;

/// A request names a Slurm job as its user's, or blames a node for a failure. A node's name can be
/// a program's argument.
std::vector<SlurmQuestion> QuestionsIn(const StoreRequest& request);

/// One of a job that may have been requeued.
struct SlurmRun {
  uid_t user = 0;
  std::optional<std::int64_t> start;  // in seconds since 1970
  std::optional<std::int64_t> end;    // of a job that runs: by its limit
  bool completing = false;            // then some of its nodes may be missing
  std::string nodes;                  // a list such as "n[1-3]"; empty: it has none yet
};

/// From lines "JOB|UID|START|END|STATE|NODES" of squeue or sacct, in which users have chosen
/// nothing: those of the job itself among its array's tasks, in their order. A number may have been
/// another user's job before. A time that is no number is not known.
Result<std::vector<SlurmRun>> RunsIn(const std::string& lines, std::int64_t job);

/// From lines "JOB|ACCOUNT" of squeue or sacct. Empty: the job has none. Where Slurm does not check
/// accounts, users choose the text, line ends and all. It only decides which coordinators see the
/// job.
std::string AccountIn(const std::string& lines, std::int64_t job);

/// From a node as `scontrol --oneliner show node` prints it, with times in seconds since 1970: when
/// it was set down, if that was between ten minutes before `failed` and an hour after, or when it
/// started, if that was within the hour after. The error says what is there instead.
Result<EpochSeconds> OutageIn(std::string_view words, std::int64_t failed);

}  // namespace adaptive_train
