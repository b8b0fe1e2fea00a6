#include "launcher/run/job_ledger.h"

#include <algorithm>

#include "core/seconds.h"

namespace adaptive_train {
namespace {

JobState StateOf(ExitCode code) {
  switch (code) {
    case ExitCode::kDone:
      return JobState::kCompleted;
    case ExitCode::kInterrupted:
    case ExitCode::kTerminated:
      return JobState::kCancelled;
    case ExitCode::kRequeue:
      return JobState::kRequeued;
    default:
      return JobState::kFailed;
  }
}

}  // namespace

Result<JobLedger> JobLedger::Begin(const StoreLocation& location, const Job& job) {
  auto store = ProfileStore::Open(location);
  if (!store) return tl::unexpected(store.error());
  const Allocation& where = *job.allocation;
  JobRecord record;
  record.cluster = where.cluster;
  record.slurm_job_id = where.job_id;
  record.restart_count = where.restart_count;
  record.submit_time = where.submit_time;
  record.user = where.user;
  record.name = where.job_name;
  record.run_dir = job.run_dir;
  record.config = job.config;
  record.options = job.options;
  record.adaptive_train_version = ADAPTIVE_TRAIN_VERSION;
  record.start_time = EpochSecondsNow();
  auto id = store->BeginJob(record);
  if (!id) return tl::unexpected(id.error());
  return JobLedger(std::move(*store), *id);
}

void JobLedger::Nodes(const std::vector<Node>& nodes) {
  std::vector<NodeRecord> records;
  records.reserve(nodes.size());
  for (const Node& node : nodes) {
    records.push_back({node.name, node.source, node.processors.model, node.processors.allowed_cores,
                       node.memory.total_bytes, ToJson(node)});
  }
  Keep(store_.SaveNodes(id_, records));
}

void JobLedger::Planned(const Plan& plan) {
  std::string why;
  for (const std::string& reason : plan.why) why += (why.empty() ? "" : "; ") + reason;
  Keep(store_.SavePlan(
      id_, {ToJson(plan), static_cast<std::int64_t>(plan.ranks.size()), plan.step_seconds, why}));
}

Profile JobLedger::Known(const ProfileQuery& query) {
  auto profile = store_.ProfileOf(query);
  Keep(profile);
  return profile ? std::move(*profile) : Profile{};
}

void JobLedger::Measured(const std::string& cluster, const Profile& profile) {
  Keep(store_.SaveMeasurements(cluster, profile));
}

void JobLedger::Launched(int attempt, const std::string& outcome, const std::string& reason) {
  LaunchRecord record;
  launches_ = std::max(launches_, launches_before_ + attempt);
  record.attempt = launches_before_ + attempt;
  record.started = EpochSecondsNow();
  record.outcome = LaunchOutcomeFromString(outcome).value_or(LaunchOutcome::kFailed);
  record.reason = reason;
  retries_ += record.outcome == LaunchOutcome::kRetried ? 1 : 0;
  Keep(store_.RecordLaunch(id_, record));
}

void JobLedger::Finish(const RunOutcome& outcome, const RunStatistics& statistics) {
  if (outcome.failure) {
    const RankFailure& f = outcome.failure->failure;
    FailureRecord record;
    record.time = EpochSecondsNow();
    if (f.step > 0) record.step = f.step;
    if (f.rank >= 0) record.rank = f.rank;
    record.host = f.host;
    record.kind = outcome.failure->kind;
    record.operation = f.operation;
    if (f.peer >= 0) record.peer = "rank " + std::to_string(f.peer);
    record.cause = f.cause;
    Keep(store_.RecordFailure(id_, record));
  }
  Keep(store_.SaveSummary(id_, statistics.Summary()));
  Keep(store_.FinishJob(id_, StateOf(outcome.code), ToInt(outcome.code), EpochSecondsNow()));
}

}  // namespace adaptive_train
