#include "launcher/run/job_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/seconds.h"
#include "db/launcher_process.h"
#include "db/ledger_list.h"
#include "launcher/run/job_endings.h"

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

JobRecord RecordOf(const JobLedger::Job& job) {
  const Allocation& where = *job.allocation;
  JobRecord record;
  record.cluster = where.cluster;
  record.slurm_job_id = where.job_id;
  record.array_job_id = where.array_job_id;
  record.array_task_id = where.array_task_id;
  record.restart_count = where.restart_count;
  record.submit_time = where.submit_time;
  record.user = where.user;
  record.name = where.job_name;
  record.run_dir = job.run_dir;
  record.config = job.config;
  record.options = job.options;
  record.adaptive_train_version = ADAPTIVE_TRAIN_VERSION;
  record.start_time = EpochSecondsNow();
  record.launcher = ThisProcess();
  record.uid = NewRunUid();
  return record;
}

FailureRecord RecordOf(const Diagnosis& diagnosis) {
  const RankFailure& f = diagnosis.failure;
  FailureRecord record;
  record.time = EpochSecondsNow();
  if (f.step > 0) record.step = f.step;
  if (f.rank >= 0) record.rank = f.rank;
  record.host = f.host;
  record.kind = f.kind;
  record.blamed = BlamedFor(diagnosis);
  record.operation = f.operation;
  if (f.peer >= 0) record.peer = "rank " + std::to_string(f.peer);
  record.peer_host = diagnosis.peer_host;
  record.cause = f.cause;
  return record;
}

std::filesystem::path LedgerOf(const std::string& run_dir) {
  return std::filesystem::path(run_dir) / "ledger.jsonl";
}

/// Of this user's earlier runs: one that was requeued begins again here.
void FindOutEarlierEndings(ProfileStore& store, const std::string& user) {
  JobQuery query;
  query.users = {user};
  query.states = {JobState::kRunning};
  if (auto rows = store.FindJobs(query)) FindOutEndings(store, *rows, EpochSecondsNow());
}

void Tell(const std::string& line) {
  std::fflush(stdout);
  std::fputs(("adaptive-train: " + line + "\n").c_str(), stderr);
}

}  // namespace

Result<JobLedger> JobLedger::Begin(const Job& job) {
  auto known = OpenKnownStore(job.store, {LedgerOf(job.run_dir)});
  if (!known) return tl::unexpected(known.error());
  for (const std::string& note : known->notes) Tell(note);
  FindOutEarlierEndings(known->store, job.allocation->user);
  std::optional<Error> trouble = known->trouble;
  JobLedger ledger(std::move(*known), RecordOf(job));
  if (!trouble) {
    auto id = ledger.store_.BeginJob(ledger.job_);
    if (!id && !job.store.empty()) return tl::unexpected(id.error());
    if (id) {
      ledger.id_ = *id;
    } else {
      trouble = id.error();
    }
  }
  if (trouble) ledger.LeaveStore(*trouble);
  return ledger;
}

void JobLedger::LeaveStore(const Error& why) {
  id_.reset();
  Tell(fmt::format("warning: {}; this run is recorded in {} instead, until a store takes it in",
                   why.message, LedgerOf(job_.run_dir).string()));
}

void JobLedger::FolderIsOpen() { AfterWriting(file_.Open(LedgerOf(job_.run_dir))); }

void JobLedger::Keep(LedgerEntry entry) {
  if (id_) {
    const auto kept = store_.Record(*id_, entry);
    if (kept) return;
    LeaveStore(kept.error());
  }
  AfterWriting(file_.Append(std::move(entry)));
}

void JobLedger::AfterWriting(const Result<void>& written) {
  if (!written && !std::exchange(told_, true))
    Tell(fmt::format("warning: {}; this run is not recorded", written.error().message));
  if (!written || !file_.Written() || std::exchange(listed_, true)) return;
  const auto path = LedgerOf(job_.run_dir);
  if (auto listed = ListLedger(job_.uid, path); !listed)
    Tell(fmt::format("warning: {} is not listed ({}): the next run in its folder takes it in",
                     path.string(), listed.error().message));
}

void JobLedger::Nodes(const std::vector<Node>& nodes) {
  std::vector<NodeRecord> records;
  records.reserve(nodes.size());
  for (const Node& node : nodes) {
    records.push_back({node.name, node.source, node.processors.model, node.processors.allowed_cores,
                       node.memory.total_bytes, ToJson(node)});
  }
  Keep(std::move(records));
}

void JobLedger::Planned(const Plan& plan) {
  std::string why;
  for (const std::string& reason : plan.why) why += (why.empty() ? "" : "; ") + reason;
  Keep(PlanRecord{ToJson(plan), static_cast<std::int64_t>(plan.ranks.size()), plan.step_seconds,
                  why});
}

Profile JobLedger::Known(const ProfileQuery& query) {
  auto profile = store_.ProfileOf(query);
  if (!profile && id_) LeaveStore(profile.error());
  return profile ? std::move(*profile) : Profile{};
}

void JobLedger::Measured(const std::string& cluster, const Profile& profile) {
  Keep(MeasuredRecord{cluster, profile});
}

void JobLedger::Launched(int attempt, const std::string& outcome, const std::string& reason) {
  LaunchRecord record;
  launches_ = std::max(launches_, launches_before_ + attempt);
  record.attempt = launches_before_ + attempt;
  record.started = EpochSecondsNow();
  record.outcome = LaunchOutcomeFromString(outcome).value_or(LaunchOutcome::kFailed);
  record.reason = reason;
  retries_ += record.outcome == LaunchOutcome::kRetried ? 1 : 0;
  Keep(std::move(record));
}

void JobLedger::Failed(const Diagnosis& failure) { Keep(RecordOf(failure)); }

void JobLedger::Finish(const RunOutcome& outcome, const RunStatistics& statistics) {
  if (outcome.failure) Keep(RecordOf(*outcome.failure));
  Keep(statistics.Summary());
  Keep(JobEnd{StateOf(outcome.code), ToInt(outcome.code), EpochSecondsNow(), outcome.message});
  if (auto synced = file_.Sync(); !synced && !std::exchange(told_, true))
    Tell(fmt::format("warning: {}", synced.error().message));
}

}  // namespace adaptive_train
