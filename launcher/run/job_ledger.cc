#include "launcher/run/job_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "core/seconds.h"
#include "db/launcher_process.h"
#include "db/ledger_file.h"
#include "db/ledger_list.h"
#include "launcher/run/job_endings.h"

namespace adaptive_train {
namespace {

/// A run that was stopped is no failed one for what it could not save.
JobState StateOf(const RunOutcome& outcome) {
  if (outcome.code == ExitCode::kRankFailure && outcome.stop_asked && outcome.unsaved &&
      !outcome.failure)
    return JobState::kCancelled;
  switch (outcome.code) {
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
  record.account = where.account;
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

void Tell(const std::string& line) {
  std::fputs(("adaptive-train: " + line + "\n").c_str(), stderr);
}

/// The store as a person knows it.
std::string NameOfStore(const StoreChoice& choice) {
  const auto location = ParseStoreLocation(choice);
  return location ? NameOf(*location) : "profile store " + choice.text;
}

}  // namespace

/// The run's row in the store. One thread at a time.
class JobLedger::Row {
 public:
  /// Opens the store, takes in ledgers and begins the row. After an error the store is in memory,
  /// with what the ledgers tell, or not there.
  Result<void> Open(const StoreChoice& choice, const JobRecord& record) {
    StoreOptions options;
    if (choice.required) options.launch_budget = kStoreWait;
    auto known = OpenKnownStore(choice, {LedgerOf(record.run_dir)}, options);
    if (!known) return tl::unexpected(known.error());
    for (const std::string& note : known->notes) Tell(note);
    store_ = std::move(known->store);
    if (known->trouble) return tl::unexpected(*known->trouble);
    const auto id = store_->BeginJob(record);
    if (!id) return tl::unexpected(id.error());
    id_ = *id;
    return {};
  }

  void FindOutEarlierEndings(const std::string& user) {
    if (!store_) return;
    JobQuery query;
    query.users = {user};
    query.states = {JobState::kRunning};
    if (auto rows = store_->FindJobs(query)) FindOutEndings(*store_, *rows, EpochSecondsNow());
  }

  Result<void> Record(const NumberedEntry& entry) { return store_->Record(id_, entry); }

  Result<Profile> ProfileOf(const ProfileQuery& query) {
    return store_ ? store_->ProfileOf(query) : Result<Profile>{};
  }

 private:
  std::unique_ptr<ProfileStore> store_;
  std::int64_t id_ = 0;
};

/// Why the store was left. Any thread.
class JobLedger::Trouble {
 public:
  void Set(const Error& why) {
    std::lock_guard lock(mutex_);
    why_ = why.message;
  }
  std::string Why() const {
    std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
};

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
  const JobRecord record = RecordOf(job);
  const auto row = std::make_shared<Row>();
  JobLedger ledger(job, record, row);
  const RecordQueue::Task open = [row, choice = job.store, record] {
    return row->Open(choice, record);
  };
  if (!job.store.required) {
    ledger.to_store_->Start(open);
  } else if (auto opened = ledger.OpenRequired(open); !opened) {
    return tl::unexpected(opened.error());
  }
  return ledger;
}

/// A file that is late, as behind a lock or on a disk that hangs, may still fail as the run goes
/// on. By the time of Known it may be open: half of the time to wait is left for that.
Result<void> JobLedger::OpenRequired(const RecordQueue::Task& open) {
  const auto opened = std::make_shared<Result<void>>();
  const bool done = to_store_->Run(
      [opened, open]() -> Result<void> {
        *opened = open();
        return {};
      },
      most_wait_);
  if (done) return *opened;
  if (!most_wait_) return Fail(store_name_ + ": not opened in time", ExitCode::kStore);
  to_store_->Start([opened] { return *opened; });
  return {};
}

JobLedger::JobLedger(const Job& job, const JobRecord& record, std::shared_ptr<Row> row)
    : store_name_(NameOfStore(job.store)),
      row_(row),
      file_(std::make_shared<File>(record)),
      trouble_(std::make_shared<Trouble>()) {
  const auto location = ParseStoreLocation(job.store);
  const bool has_budget = job.store.required && location && IsService(*location);
  if (!has_budget) most_wait_ = job.store.required ? kStoreWait / 2 : kStoreWait;
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
  in_store.name = store_name_;
  in_store.write = [row = std::move(row)](const NumberedEntry& entry) {
    return row->Record(entry);
  };
  in_store.next = [to_file = to_file_](RecordQueue::Record one) { to_file->Add(std::move(one)); };
  in_store.on_left = [path, trouble = trouble_](const Error& why) {
    trouble->Set(why);
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
  const bool done = to_store_->Run(
      [row = row_, query, known]() -> Result<void> {
        auto profile = row.lock()->ProfileOf(query);
        if (!profile) return tl::unexpected(profile.error());
        *known = std::move(*profile);
        return {};
      },
      most_wait_);
  if (done) return std::move(*known);
  if (trouble_->Why().empty())
    Tell(fmt::format("{}: no answer within {} ms; going on without what it holds", store_name_,
                     most_wait_.value_or(kStoreWait).count()));
  return {};
}

void JobLedger::FindOutEarlierEndings(const std::string& user) {
  to_store_->Start([row = row_, user]() -> Result<void> {
    row.lock()->FindOutEarlierEndings(user);
    return {};
  });
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
  // By now the store has shown whether it holds; `jobs` tells where it does not.
  to_store_->Run([]() -> Result<void> { return {}; });
  std::string reason = outcome.message;
  if (const std::string why = trouble_->Why(); !why.empty())
    reason += (reason.empty() ? "" : "; ") + ("not stored as it ran: " + why);
  Keep(JobEnd{StateOf(outcome), ToInt(outcome.code), EpochSecondsNow(), reason});
  to_store_->Finish();
  to_file_->Run([file = file_]() -> Result<void> {
    file->Sync();
    return {};
  });
  to_file_->Finish();
}

}  // namespace adaptive_train
