// The profile store: what past jobs were, how they were planned, what they measured and how they
// failed.
#include "db/profile_store.h"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>

#include <cassert>
#include <string>
#include <utility>

#include "db/job_rows.h"
#include "db/migration.h"
#include "db/open_database.h"
#include "db/profile_rows.h"
#include "db/statement.h"
#include "db/store_error.h"

namespace adaptive_train {
namespace {

constexpr const char* kInsertJob =
    "INSERT INTO jobs (cluster, slurm_job_id, restart_count, submit_time, user, name, run_dir, "
    "config, options,"
    "                  adaptive_train_version, start_time, state, launcher_host, launcher_boot_id,"
    "                  launcher_pid_namespace, launcher_pid, launcher_start_ticks, run_number)"
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,"
    "        coalesce(max(run_number) + 1, 0)"
    "   FROM jobs WHERE cluster = ?1 AND slurm_job_id = ?2 AND restart_count = ?3 AND submit_time "
    "= ?4";

constexpr const char* kFinishJob =
    "UPDATE jobs SET state = ?2, exit_code = ?3, end_time = ?4 WHERE id = ?1";

constexpr const char* kDeleteNodes = "DELETE FROM nodes WHERE job_id = ?1";
constexpr const char* kInsertNode =
    "INSERT INTO nodes (job_id, position, name, source, cpu_model, cores, memory_bytes, snapshot)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

constexpr const char* kNextPlan =
    "SELECT coalesce(max(sequence) + 1, 0) FROM plans WHERE job_id = ?1";
constexpr const char* kInsertPlan =
    "INSERT INTO plans (job_id, sequence, plan, ranks, predicted_step_s, why) VALUES (?1, ?2, ?3, "
    "?4, ?5, ?6)";

constexpr const char* kReplaceLaunch =
    "INSERT OR REPLACE INTO launches (job_id, attempt, started, outcome, reason) VALUES (?1, ?2, "
    "?3, ?4, ?5)";

constexpr const char* kInsertFailure =
    "INSERT INTO failures (job_id, time, step, rank, host, kind, operation, peer, cause)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

constexpr const char* kReplaceSummary =
    "INSERT OR REPLACE INTO summaries (job_id, steps, tokens, final_loss, validation_loss, "
    "tokens_per_s, mean_step_s,"
    "                                  robustness, mfu, grad_bytes, param_bytes, activation_bytes, "
    "peak_memory_bytes)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

template <class... Values>
int Execute(SQLite::Database& database, const char* sql, const Values&... values) {
  SQLite::Statement statement(database, sql);
  BindAll(statement, values...);
  return statement.exec();
}

}  // namespace

ProfileStore::ProfileStore(StoreLocation location, std::chrono::milliseconds busy_timeout,
                           std::unique_ptr<SQLite::Database> database)
    : location_(std::move(location)), busy_timeout_(busy_timeout), database_(std::move(database)) {}

ProfileStore::ProfileStore(ProfileStore&&) noexcept = default;
ProfileStore& ProfileStore::operator=(ProfileStore&&) noexcept = default;
ProfileStore::~ProfileStore() = default;

Result<ProfileStore> ProfileStore::Open(const StoreLocation& location, const OpenOptions& options) {
  return OpenDatabase(location, options.busy_timeout, options.create, SchemaMigrations())
      .map([&](OpenedDatabase opened) {
        return ProfileStore(std::move(opened.location), options.busy_timeout,
                            std::move(opened.database));
      });
}

template <class Body>
auto ProfileStore::Transact(bool writes, const char* doing, const Body& body) -> decltype(body()) {
  try {
    using Behavior = SQLite::TransactionBehavior;
    // A writer takes its lock at the start: to wait for it later, from a read, is a deadlock that
    // SQLite refuses.
    SQLite::Transaction transaction(*database_, writes ? Behavior::IMMEDIATE : Behavior::DEFERRED);
    auto result = body();
    if (result) transaction.commit();
    return result;
  } catch (const SQLite::Exception& exception) {
    return tl::unexpected(
        StoreError(location_.path, doing, busy_timeout_, exception, database_.get()));
  }
}

Result<std::int64_t> ProfileStore::BeginJob(const JobRecord& job) {
  return Transact(true, "storing a job", [&]() -> Result<std::int64_t> {
    const LauncherProcess launcher = job.launcher ? *job.launcher : ThisProcess();
    Execute(*database_, kInsertJob, job.cluster, job.slurm_job_id, job.restart_count,
            job.submit_time, job.user, job.name, job.run_dir, job.config, job.options,
            job.adaptive_train_version, job.start_time, ToString(JobState::kRunning), launcher.host,
            launcher.boot_id, launcher.pid_namespace, launcher.pid, launcher.start_ticks);
    return database_->getLastInsertRowid();
  });
}

Result<void> ProfileStore::SaveNodes(std::int64_t job_id, const std::vector<NodeRecord>& nodes) {
  return Transact(true, "storing the nodes", [&]() -> Result<void> {
    Execute(*database_, kDeleteNodes, job_id);
    SQLite::Statement insert(*database_, kInsertNode);
    std::int64_t position = 0;
    for (const NodeRecord& node : nodes) {
      BindAll(insert, job_id, position++, node.name, node.source, node.cpu_model, node.cores,
              node.memory_bytes, node.snapshot);
      insert.exec();
      insert.reset();
    }
    return {};
  });
}

Result<std::int64_t> ProfileStore::SavePlan(std::int64_t job_id, const PlanRecord& plan) {
  return Transact(true, "storing the plan", [&]() -> Result<std::int64_t> {
    SQLite::Statement next(*database_, kNextPlan);
    BindAll(next, job_id);
    next.executeStep();
    const std::int64_t sequence = next.getColumn(0).getInt64();
    Execute(*database_, kInsertPlan, job_id, sequence, plan.plan, plan.ranks, plan.predicted_step_s,
            plan.why);
    return sequence;
  });
}

Result<void> ProfileStore::RecordLaunch(std::int64_t job_id, const LaunchRecord& launch) {
  return Transact(true, "storing a launch", [&]() -> Result<void> {
    Execute(*database_, kReplaceLaunch, job_id, launch.attempt, launch.started,
            ToString(launch.outcome), launch.reason);
    return {};
  });
}

Result<void> ProfileStore::RecordFailure(std::int64_t job_id, const FailureRecord& failure) {
  return Transact(true, "storing a failure", [&]() -> Result<void> {
    Execute(*database_, kInsertFailure, job_id, failure.time, failure.step, failure.rank,
            failure.host, failure.kind, failure.operation, failure.peer, failure.cause);
    return {};
  });
}

Result<void> ProfileStore::SaveSummary(std::int64_t job_id, const SummaryRecord& summary) {
  return Transact(true, "storing the summary", [&]() -> Result<void> {
    Execute(*database_, kReplaceSummary, job_id, summary.steps, summary.tokens, summary.final_loss,
            summary.validation_loss, summary.tokens_per_s, summary.mean_step_s, summary.robustness,
            summary.mfu, summary.grad_bytes, summary.param_bytes, summary.activation_bytes,
            summary.peak_memory_bytes);
    return {};
  });
}

Result<void> ProfileStore::FinishJob(std::int64_t job_id, JobState state, int exit_code,
                                     EpochSeconds end_time) {
  assert(state != JobState::kRunning && state != JobState::kLost);
  return Transact(true, "storing the end of a job", [&]() -> Result<void> {
    const int changed =
        Execute(*database_, kFinishJob, job_id, ToString(state), std::int64_t{exit_code}, end_time);
    if (changed == 1) return {};
    return Fail(fmt::format("profile store {}: job {} to end is not in the store",
                            location_.path.string(), job_id),
                ExitCode::kStore);
  });
}

Result<std::vector<JobRow>> ProfileStore::FindJobs(const JobQuery& query) {
  return Transact(false, "reading jobs", [&] { return ReadJobRows(*database_, query); });
}

Result<std::vector<FailureRecord>> ProfileStore::FailuresOf(std::int64_t job_id) {
  return Transact(false, "reading failures", [&]() -> Result<std::vector<FailureRecord>> {
    return ReadFailures(*database_, job_id);
  });
}

Result<std::vector<LaunchRecord>> ProfileStore::LaunchesOf(std::int64_t job_id) {
  return Transact(false, "reading launches", [&] { return ReadLaunches(*database_, job_id); });
}

Result<void> ProfileStore::SaveMeasurements(const std::string& cluster, const Profile& profile) {
  return Transact(true, "storing what was measured",
                  [&] { return MergeProfile(*database_, cluster, profile); });
}

Result<Profile> ProfileStore::ProfileOf(const ProfileQuery& query) {
  return Transact(false, "reading what was measured",
                  [&]() -> Result<Profile> { return ReadProfile(*database_, query); });
}

Result<Profile> ProfileStore::MeasurementsOf(const std::string& cluster) {
  return Transact(false, "reading what was measured",
                  [&]() -> Result<Profile> { return ReadMeasurements(*database_, cluster); });
}

Result<std::vector<std::string>> ProfileStore::MeasuredClusters() {
  return Transact(false, "reading what was measured",
                  [&]() -> Result<std::vector<std::string>> { return ReadClusters(*database_); });
}

}  // namespace adaptive_train
