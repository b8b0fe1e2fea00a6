#include "db/job_writes.h"

#include <fmt/format.h>

#include "db/database.h"
#include "db/profile_rows.h"
#include "db/snapshots.h"

namespace adaptive_train {
namespace {

constexpr const char* kInsertJob =
    "INSERT INTO jobs (cluster, slurm_job_id, restart_count, submit_time, user, name, run_dir, "
    "config, options,"
    "                  adaptive_train_version, start_time, state, launcher_host, launcher_boot_id,"
    "                  launcher_pid_namespace, launcher_pid, launcher_start_ticks, array_job_id,"
    "                  array_task_id, uid, owner, account, run_number)"
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,"
    "        nullif(?20, ''), ?21, ?22,"
    "        coalesce(max(run_number) + 1, 0)"
    "   FROM jobs WHERE cluster = ?1 AND slurm_job_id = ?2 AND restart_count = ?3 AND submit_time "
    "= ?4";

/// What Slurm has said while the launcher was ending stays: it knows why.
constexpr const char* kFinishJob =
    "UPDATE jobs SET exit_code = ?3, end_time = ?4,"
    " state = CASE WHEN slurm_state = '' OR state = 'LOST' THEN ?2 ELSE state END,"
    " reason = CASE WHEN slurm_state = '' OR state = 'LOST' OR reason = '' THEN ?5"
    "          WHEN ?5 = '' THEN reason ELSE ?5 || '; ' || reason END"
    " WHERE id = ?1";

constexpr const char* kFindOut =
    "UPDATE jobs SET state = ?3, end_time = coalesce(end_time, ?4), reason = ?5, slurm_state = ?6"
    " WHERE id = ?1 AND state = ?2";

constexpr const char* kChargeTo =
    "UPDATE jobs SET account = ?5 WHERE cluster = ?1 AND slurm_job_id = ?2 AND restart_count = ?3"
    " AND owner = ?4 AND +start_time >= ?6 AND account <> ?5";

constexpr const char* kDeleteNodes = "DELETE FROM nodes WHERE job_id = ?1";
constexpr const char* kInsertNode =
    "INSERT INTO nodes (job_id, position, name, source, cpu_model, cores, memory_bytes, "
    "snapshot_hash)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

constexpr const char* kInsertPlan =
    "INSERT INTO plans (job_id, sequence, plan, ranks, predicted_step_s, why)"
    " SELECT ?1, coalesce(max(sequence) + 1, 0), ?2, ?3, ?4, ?5 FROM plans WHERE job_id = ?1";

constexpr const char* kReplaceLaunch =
    "INSERT OR REPLACE INTO launches (job_id, attempt, started, outcome, reason) VALUES (?1, ?2, "
    "?3, ?4, ?5)";

constexpr const char* kInsertFailure =
    "INSERT INTO failures (job_id, time, step, rank, host, kind, operation, peer, cause, peer_host,"
    "                      blamed, cluster, owner)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,"
    "         coalesce((SELECT cluster FROM jobs WHERE id = ?1), ''),"
    "         coalesce((SELECT owner FROM jobs WHERE id = ?1), -1))";

constexpr const char* kReplaceSummary =
    "INSERT OR REPLACE INTO summaries (job_id, steps, tokens, final_loss, validation_loss, "
    "tokens_per_s, mean_step_s,"
    "                                  robustness, mfu, grad_bytes, param_bytes, activation_bytes, "
    "peak_memory_bytes, micro_batches, predicted_step_s, plan_step_s)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

constexpr const char* kOwnerOf = "SELECT owner FROM jobs WHERE id = ?1";
constexpr const char* kOwnerOfRun = "SELECT owner FROM jobs WHERE uid = ?1";
constexpr const char* kAccountOf = "SELECT account FROM jobs WHERE id = ?1";
constexpr const char* kUidOf = "SELECT coalesce(uid, '') FROM jobs WHERE id = ?1";
constexpr const char* kFindByUid = "SELECT id FROM jobs WHERE uid = ?1";
constexpr const char* kEntriesTaken = "SELECT entries FROM ledgers WHERE uid = ?1";
constexpr const char* kReplaceLedger =
    "INSERT OR REPLACE INTO ledgers (uid, entries) VALUES (?1, ?2)";

template <class... Values>
int Execute(Database& database, const char* sql, const Values&... values) {
  Statement statement(database, sql);
  return statement.Bind(values...).Run();
}

/// The only number that `sql` selects, or none.
template <class Key>
std::optional<std::int64_t> FindNumber(Database& database, const char* sql, const Key& key) {
  Statement statement(database, sql);
  statement.Bind(key);
  if (!statement.Step()) return std::nullopt;
  return Column<std::int64_t>(statement);
}

/// Empty: the job is not in the store, or has none.
std::string FindText(Database& database, const char* sql, std::int64_t job_id) {
  Statement statement(database, sql);
  statement.Bind(job_id);
  return statement.Step() ? Column<std::string>(statement) : "";
}

}  // namespace

std::int64_t InsertJob(Database& database, Owner owner, const JobRecord& job) {
  const LauncherProcess launcher = job.launcher ? *job.launcher : ThisProcess();
  Execute(database, kInsertJob, job.cluster, job.slurm_job_id, job.restart_count, job.submit_time,
          job.user, job.name, job.run_dir, job.config, job.options, job.adaptive_train_version,
          job.start_time, ToString(JobState::kRunning), launcher.host, launcher.boot_id,
          launcher.pid_namespace, launcher.pid, launcher.start_ticks, job.array_job_id,
          job.array_task_id, job.uid, owner, job.account);
  return database.LastInsertedId();
}

std::optional<Owner> OwnerOf(Database& database, std::int64_t job_id) {
  return FindNumber(database, kOwnerOf, job_id);
}

std::string AccountOf(Database& database, std::int64_t job_id) {
  return FindText(database, kAccountOf, job_id);
}

std::optional<Owner> OwnerOfRun(Database& database, const std::string& uid) {
  return FindNumber(database, kOwnerOfRun, uid);
}

Result<void> WriteRow(Database& database, std::int64_t job_id,
                      const std::vector<NodeRecord>& nodes) {
  Execute(database, kDeleteNodes, job_id);
  Statement insert(database, kInsertNode);
  std::int64_t position = 0;
  for (const NodeRecord& node : nodes) {
    insert
        .Bind(job_id, position++, node.name, node.source, node.cpu_model, node.cores,
              node.memory_bytes, StoreSnapshot(database, node.snapshot))
        .Run();
  }
  return {};
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const PlanRecord& plan) {
  Execute(database, kInsertPlan, job_id, plan.plan, plan.ranks, plan.predicted_step_s, plan.why);
  return {};
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const LaunchRecord& launch) {
  Execute(database, kReplaceLaunch, job_id, launch.attempt, launch.started,
          ToString(launch.outcome), launch.reason);
  return {};
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const FailureRecord& failure) {
  Execute(database, kInsertFailure, job_id, failure.time, failure.step, failure.rank, failure.host,
          NameOf(failure.kind), failure.operation, failure.peer, failure.cause, failure.peer_host,
          NameOf(failure.blamed));
  return {};
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const MeasuredRecord& measured) {
  return MergeProfile(database, OwnerOf(database, job_id).value_or(kFileOwner), measured.cluster,
                      measured.profile);
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const SummaryRecord& summary) {
  Execute(database, kReplaceSummary, job_id, summary.steps, summary.tokens, summary.final_loss,
          summary.validation_loss, summary.tokens_per_s, summary.mean_step_s, summary.robustness,
          summary.mfu, summary.grad_bytes, summary.param_bytes, summary.activation_bytes,
          summary.peak_memory_bytes, summary.micro_batches, summary.predicted_step_s,
          summary.plan_step_s);
  return {};
}

Result<void> WriteRow(Database& database, std::int64_t job_id, const JobEnd& end) {
  const int changed = Execute(database, kFinishJob, job_id, ToString(end.state),
                              std::int64_t{end.exit_code}, end.end_time, end.reason);
  if (changed == 1) return {};
  return Fail(fmt::format("profile store: job {} to end is not in the store", job_id),
              ExitCode::kStore);
}

Result<void> WriteEntry(Database& database, std::int64_t job_id, const NumberedEntry& entry) {
  const std::string uid = FindText(database, kUidOf, job_id);
  if (!uid.empty() && FindNumber(database, kEntriesTaken, uid).value_or(0) >= entry.number)
    return {};
  auto written =
      std::visit([&](const auto& row) { return WriteRow(database, job_id, row); }, entry.entry);
  if (written && !uid.empty()) Execute(database, kReplaceLedger, uid, entry.number);
  return written;
}

void WriteFoundEnd(Database& database, std::int64_t job_id, JobState was, const FoundEnd& end) {
  Execute(database, kFindOut, job_id, ToString(was), ToString(end.state), end.end_time, end.reason,
          end.slurm_state);
}

void WriteAccount(Database& database, Owner owner, const ChargedJob& job) {
  Execute(database, kChargeTo, job.cluster, job.slurm_job_id, job.restart_count, owner, job.account,
          job.since);
}

Result<std::int64_t> WriteLedger(Database& database, Owner owner, const RunLedger& run) {
  const std::string& uid = run.job.uid;
  const std::int64_t known = FindNumber(database, kEntriesTaken, uid).value_or(0);
  const auto stored = FindNumber(database, kFindByUid, uid);
  if (known > 0 && !stored) return 0;  // it was removed, as it is old
  const std::int64_t job_id = stored ? *stored : InsertJob(database, owner, run.job);
  std::int64_t taken = 0, last = known;
  for (const NumberedEntry& one : run.entries) {
    if (one.number <= last) continue;
    // A figure that the store refuses must not block the entries after it.
    (void)std::visit([&](const auto& row) { return WriteRow(database, job_id, row); }, one.entry);
    last = one.number;
    ++taken;
  }
  if (taken > 0) Execute(database, kReplaceLedger, uid, last);
  return taken;
}

}  // namespace adaptive_train
