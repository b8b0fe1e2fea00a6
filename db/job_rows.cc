// Reads stored records back out of an open database.
#include "db/job_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "db/database.h"

namespace adaptive_train {
namespace {

// A list is bound as one text with ?1 before and after each word; an absent list is NULL.
constexpr const char* kFindJobs =
    "SELECT jobs.id, run_number, cluster, slurm_job_id, restart_count, submit_time, user, name, "
    "run_dir, iif(?9, config, ''), options, account,"
    "       adaptive_train_version, start_time, launcher_host, launcher_boot_id, "
    "launcher_pid_namespace, launcher_pid,"
    "       launcher_start_ticks, state, end_time, exit_code, reason, array_job_id, array_task_id,"
    "       coalesce(uid, ''),"
    "       coalesce((SELECT ranks FROM plans WHERE job_id = jobs.id ORDER BY sequence DESC LIMIT "
    "1), 0),"
    "       (SELECT count(*) FROM failures WHERE job_id = jobs.id AND kind <> 'slow'),"
    "       (SELECT count(*) FROM launches WHERE job_id = jobs.id),"
    "       (SELECT count(*) FROM launches WHERE job_id = jobs.id AND outcome = 'retried'),"
    "       slurm_state,"
    "       summaries.job_id IS NOT NULL, steps, tokens, final_loss, validation_loss, "
    "tokens_per_s, mean_step_s, robustness, mfu, grad_bytes, param_bytes, activation_bytes, "
    "peak_memory_bytes, micro_batches, predicted_step_s, plan_step_s"
    "  FROM jobs LEFT JOIN summaries ON summaries.job_id = jobs.id"
    " WHERE (?2 IS NULL OR instr(?2, ?1 || (CASE WHEN slurm_job_id > 0 THEN slurm_job_id ELSE 'L' "
    "|| jobs.id END) || ?1)"
    "        OR instr(?2, ?1 || array_job_id || ?1)"
    "        OR instr(?2, ?1 || array_job_id || '_' || array_task_id || ?1))"
    "   AND (?3 IS NULL OR instr(?3, ?1 || user || ?1))"
    "   AND (?4 IS NULL OR end_time IS NULL OR end_time >= ?4)"
    "   AND (?5 IS NULL OR start_time <= ?5)"
    "   AND (?6 IS NULL OR instr(?6, ?1 || state || ?1))";
// Added where it holds, so that SQLite can use the index of owners. A "+" keeps it from that index.
constexpr const char* kOfOwner = " AND owner = ?7";
constexpr const char* kOfOwnerToo = " AND +owner = ?7";
constexpr const char* kOfOwnerOrAccounts = " AND (+owner = ?7 OR instr(?10, ?1 || account || ?1))";
constexpr const char* kInOrder = " ORDER BY start_time, jobs.id";
constexpr const char* kNewestFirst = " ORDER BY start_time DESC, jobs.id DESC LIMIT ?8";

constexpr const char* kNodeNames = "SELECT name FROM nodes WHERE job_id = ?1 ORDER BY position";

constexpr const char* kLaunches =
    "SELECT attempt, started, outcome, reason FROM launches WHERE job_id = ?1 ORDER BY attempt";

constexpr const char* kFailures =
    "SELECT time, step, rank, host, kind, operation, peer, cause, peer_host, blamed FROM failures "
    "WHERE job_id = ?1 ORDER BY time, id";

const std::string kSeparator = "\n";

template <class Items, class Word>
std::string Listed(const Items& items, const Word& word) {
  std::string text = kSeparator;
  for (const auto& item : items) text += std::string(word(item)) + kSeparator;
  return text;
}

template <class Items, class Word>
std::optional<std::string> ListedUnlessEmpty(const Items& items, const Word& word) {
  return items.empty() ? std::nullopt : std::optional(Listed(items, word));
}

tl::unexpected<Error> UnknownWord(std::int64_t job_id, const std::string& what,
                                  const std::string& word) {
  return Fail(fmt::format("profile store: job {} has the {} '{}', which is none of ours: the file "
                          "was changed by hand",
                          job_id, what, word),
              ExitCode::kStore);
}

void ReadSummary(RowReader& column, JobRow& row) {
  std::int64_t is_there = 0;
  column >> is_there;
  if (is_there == 0) return;
  SummaryRecord& summary = row.summary.emplace();
  column >> summary.steps >> summary.tokens >> summary.final_loss >> summary.validation_loss >>
      summary.tokens_per_s >> summary.mean_step_s >> summary.robustness >> summary.mfu >>
      summary.grad_bytes >> summary.param_bytes >> summary.activation_bytes >>
      summary.peak_memory_bytes >> summary.micro_batches >> summary.predicted_step_s >>
      summary.plan_step_s;
}

Result<JobRow> ReadJobRow(Statement& statement) {
  JobRow row;
  JobRecord& job = row.job;
  LauncherProcess& launcher = job.launcher.emplace();
  std::string state;
  RowReader column(statement);
  column >> row.id >> row.run_number >> job.cluster >> job.slurm_job_id >> job.restart_count >>
      job.submit_time >> job.user >> job.name >> job.run_dir >> job.config >> job.options >>
      job.account >> job.adaptive_train_version >> job.start_time >> launcher.host >>
      launcher.boot_id >> launcher.pid_namespace >> launcher.pid >> launcher.start_ticks >> state >>
      row.end_time >> row.exit_code >> row.reason >> job.array_job_id >> job.array_task_id >>
      job.uid >> row.ranks >> row.failures >> row.launches >> row.launch_retries >> row.slurm_state;
  const auto known = JobStateFromString(state);
  if (!known) return UnknownWord(row.id, "state", state);
  row.state = *known;
  ReadSummary(column, row);
  return row;
}

void ReadNodeNames(Statement& statement, JobRow& row) {
  statement.Bind(row.id);
  while (statement.Step()) RowReader(statement) >> row.nodes.emplace_back();
}

/// What lets SQLite find the jobs of the keys by its indices; kFindJobs then says which are meant.
std::string AmongKeys(const std::vector<JobKey>& keys) {
  std::string local, slurm;
  for (const JobKey& key : keys) {
    std::string& list = key.local ? local : slurm;
    list += fmt::format("{}{}", list.empty() ? "" : ",", key.id);
  }
  // SQLite reads all jobs where one of the lists is empty.
  std::vector<std::string> any;
  if (!local.empty()) any.push_back(fmt::format("jobs.id IN ({})", local));
  if (!slurm.empty())
    any.push_back(fmt::format("slurm_job_id IN ({0}) OR array_job_id IN ({0})", slurm));
  return fmt::format(" AND ({})", fmt::join(any, " OR "));
}

std::string FindJobsText(const std::optional<JobsOf>& of, const JobQuery& query) {
  std::string text = kFindJobs;
  if (!query.ids.empty()) text += AmongKeys(query.ids);
  if (of && !of->accounts.empty())
    text += kOfOwnerOrAccounts;
  else if (of)
    text += query.ids.empty() ? kOfOwner : kOfOwnerToo;
  return text + (query.newest ? kNewestFirst : kInOrder);
}

}  // namespace

Result<std::vector<JobRow>> ReadJobRows(Database& database, const std::optional<JobsOf>& of,
                                        const JobQuery& query) {
  const auto ids = ListedUnlessEmpty(query.ids, [](const JobKey& key) {
    const std::string task = key.task ? fmt::format("_{}", *key.task) : "";
    return fmt::format("{}{}{}", key.local ? "L" : "", key.id, task);
  });
  const auto users =
      query.all_users
          ? std::nullopt
          : std::optional(Listed(query.users, [](const std::string& user) { return user; }));
  const auto states =
      ListedUnlessEmpty(query.states, [](JobState state) { return ToString(state); });
  Statement find(database, FindJobsText(of, query));
  std::optional<Owner> owner;
  if (of) owner = of->owner;
  const auto accounts =
      of ? ListedUnlessEmpty(of->accounts, [](const std::string& one) { return one; })
         : std::nullopt;
  find.Bind(kSeparator, ids, users, query.start, query.end, states, owner, query.newest,
            std::int64_t{query.configs});
  if (accounts) find.BindMore(*accounts);
  Statement nodes(database, kNodeNames);
  std::vector<JobRow> rows;
  while (find.Step()) {
    Result<JobRow> row = ReadJobRow(find);
    if (!row) return tl::unexpected(row.error());
    ReadNodeNames(nodes, *row);
    rows.push_back(std::move(*row));
  }
  if (query.newest) std::ranges::reverse(rows);
  return rows;
}

Result<std::vector<LaunchRecord>> ReadLaunches(Database& database, std::int64_t job_id) {
  Statement statement(database, kLaunches);
  statement.Bind(job_id);
  std::vector<LaunchRecord> launches;
  while (statement.Step()) {
    LaunchRecord& launch = launches.emplace_back();
    std::string outcome;
    RowReader(statement) >> launch.attempt >> launch.started >> outcome >> launch.reason;
    const auto known = LaunchOutcomeFromString(outcome);
    if (!known) return UnknownWord(job_id, "launch outcome", outcome);
    launch.outcome = *known;
  }
  return launches;
}

Result<std::vector<FailureRecord>> ReadFailures(Database& database, std::int64_t job_id) {
  Statement statement(database, kFailures);
  statement.Bind(job_id);
  std::vector<FailureRecord> failures;
  while (statement.Step()) {
    FailureRecord& failure = failures.emplace_back();
    std::string kind, blamed;
    RowReader(statement) >> failure.time >> failure.step >> failure.rank >> failure.host >> kind >>
        failure.operation >> failure.peer >> failure.cause >> failure.peer_host >> blamed;
    const auto known_kind = ChoiceOf<FailureKind>(kind);
    if (!known_kind) return UnknownWord(job_id, "kind of failure", kind);
    const auto known_blamed = ChoiceOf<Blamed>(blamed);
    if (!known_blamed) return UnknownWord(job_id, "blame of a failure", blamed);
    failure.kind = *known_kind;
    failure.blamed = *known_blamed;
  }
  return failures;
}

}  // namespace adaptive_train
