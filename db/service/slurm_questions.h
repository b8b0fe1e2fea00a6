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

struct SlurmJob {
  uid_t user = 0;
  std::string nodes;    // a list such as "n[1-3]"; empty: it has none yet
  std::string account;  // empty: it has none
};

/// From lines "JOB|UID|NODES|ACCOUNT" of squeue or sacct, with `separator` in place of "|": the
/// job's own among those of its array's tasks. Users may choose their accounts' names, line ends and
/// all: a separator that nobody can know keeps them from writing lines. None: the job is not there.
Result<std::optional<SlurmJob>> SlurmJobIn(const std::string& lines, const std::string& separator,
                                           std::int64_t job);

/// From a node as `scontrol --oneliner show node` prints it with times in seconds since 1970: when it
/// was set down, if that was between ten minutes before `failed` and an hour after, or when it
/// started, if that was within the hour after. The error says what is there instead.
Result<EpochSeconds> OutageIn(std::string_view words, std::int64_t failed);

}  // namespace adaptive_train
