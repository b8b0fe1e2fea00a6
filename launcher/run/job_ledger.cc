#include "launcher/run/job_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/seconds.h"
#include "db/launcher_process.h"
#include "db/ledger_file.h"
#include "db/ledger_list.h"
#include "launcher/run/job_endings.h"

namespace adaptive_train {
namespace {

/// What a service that keeps the store may hold up the first step.
constexpr std::chrono::milliseconds kLaunchBudget{100};

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

/// RUN/ledger.jsonl. One thread.
class JobLedger::File {
 public:
  explicit File(const JobRecord& job) : uid_(job.uid), path_(LedgerOf(job.run_dir)), file_(job) {}

  /// The run folder exists.
  void Open() { AfterWriting(file_.Open(path_)); }
  void Append(const NumberedEntry& entry) { AfterWriting(file_.Append(entry)); }
  void Sync() {
    if (auto synced = file_.Sync(); !synced && !std::exchange(told_, true))
      Tell(fmt::format("warning: {}", synced.error().message));
  }

 private:
  /// Reports the first failure, lists the ledger after the first success.
  void AfterWriting(const Result<void>& written) {
    if (!written && !std::exchange(told_, true))
      Tell(fmt::format("warning: {}; this run is not recorded", written.error().message));
    if (!written || !file_.Written() || std::exchange(listed_, true)) return;
    if (auto listed = ListLedger(uid_, path_); !listed)
      Tell(fmt::format("warning: {} is not listed ({}): the next run in its folder takes it in",
                       path_.string(), listed.error().message));
  }

  const std::string uid_;
  const std::filesystem::path path_;
  LedgerFile file_;
  bool listed_ = false, told_ = false;
};

Result<JobLedger> JobLedger::Begin(const Job& job) {
  StoreOptions options;
  options.launch_budget = kLaunchBudget;
  auto known = OpenKnownStore(job.store, {LedgerOf(job.run_dir)}, options);
  if (!known) return tl::unexpected(known.error());
  for (const std::string& note : known->notes) Tell(note);
  FindOutEarlierEndings(*known->store, job.allocation->user);
  const JobRecord record = RecordOf(job);
  Result<std::int64_t> id =
      known->trouble ? tl::unexpected(*known->trouble) : known->store->BeginJob(record);
  if (!id && !job.store.empty()) return tl::unexpected(id.error());
  JobLedger ledger(std::shared_ptr<ProfileStore>(std::move(known->store)), id.value_or(0), record);
  if (!id) ledger.to_store_->Leave(id.error());
  return ledger;
}

JobLedger::JobLedger(std::shared_ptr<ProfileStore> store, std::int64_t job_id, const JobRecord& job)
    : store_(store), file_(std::make_shared<File>(job)) {
  const std::filesystem::path path = LedgerOf(job.run_dir);
  RecordQueue::Place in_file;
  in_file.name = "ledger " + path.string();
  in_file.write = [file = file_](const NumberedEntry& entry) -> Result<void> {
    file->Append(entry);
    return {};
  };
  in_file.next = [](const RecordQueue::Record&) {};
  in_file.on_left = [](const Error& why) {
    Tell(fmt::format("warning: {}; from here on this run is not recorded", why.message));
  };
  to_file_ = std::make_shared<RecordQueue>(std::move(in_file));

  RecordQueue::Place in_store;
  in_store.name = store->Name();
  in_store.write = [store = std::move(store), job_id](const NumberedEntry& entry) {
    return store->Record(job_id, entry);
  };
  in_store.next = [to_file = to_file_](RecordQueue::Record record) {
    to_file->Add(std::move(record));
  };
  in_store.on_left = [path](const Error& why) {
    Tell(fmt::format("warning: {}; this run is recorded in {} instead, until a store takes it in",
                     why.message, path.string()));
  };
  to_store_ = std::make_unique<RecordQueue>(std::move(in_store));
}

void JobLedger::FolderIsOpen() {
  to_file_->Run([file = file_]() -> Result<void> {
    file->Open();
    return {};
  });
}

void JobLedger::Keep(LedgerEntry entry) {
  to_store_->Add(
      std::make_shared<const NumberedEntry>(NumberedEntry{++entries_, std::move(entry)}));
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
  const auto known = std::make_shared<Profile>();
  const bool done = to_store_->Run([store = store_, query, known]() -> Result<void> {
    auto profile = store.lock()->ProfileOf(query);
    if (!profile) return tl::unexpected(profile.error());
    *known = std::move(*profile);
    return {};
  });
  return done ? std::move(*known) : Profile{};
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
  to_store_->Finish();
  to_file_->Run([file = file_]() -> Result<void> {
    file->Sync();
    return {};
  });
  to_file_->Finish();
}

}  // namespace adaptive_train
