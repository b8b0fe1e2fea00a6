// One job's records from the launcher, in the profile store or in RUN/ledger.jsonl.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/plan.h"
#include "db/known_store.h"
#include "launcher/nodes/allocation.h"
#include "launcher/report/run_statistics.h"
#include "launcher/run/record_queue.h"
#include "launcher/steps/diagnosis.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// Records a run in the store. After the first error of the store, or if it does not answer in
/// time, it uses RUN/ledger.jsonl, which the next store that opens takes in. Such errors are
/// reported on stderr and in the job's reason, and never end a run. Only Begin refuses a store, and
/// only a required one whose error is known in time. All members from one thread; other threads use
/// the stores and files. FolderIsOpen, Finish and the destructor wait for them, no longer than
/// RecordQueue's patience without progress. Begin and Known wait for a required store for
/// kStoreWait in all. For other stores Begin does not wait, and Known for kStoreWait at most. The
/// other calls do not block.
class JobLedger {
 public:
  /// How long a run waits for its store before its first step.
  static constexpr std::chrono::milliseconds kStoreWait{100};

  struct Job {
    const Allocation* allocation = nullptr;
    std::string run_dir;  // absolute; need not exist yet
    std::string config;
    std::string options;
    StoreChoice store;
  };

  /// Opens the store and begins the job. Fails with kUsage or kStore if the store is required, and
  /// a service also if it has not recorded the job in time.
  static Result<JobLedger> Begin(const Job& job);

  /// The run folder exists: ledger.jsonl may be written.
  void FolderIsOpen();
  void Nodes(const std::vector<Node>& nodes);
  void Planned(const Plan& plan);
  /// Profiles from earlier jobs; empty, with a line on stderr, if the store fails or is late.
  Profile Known(const ProfileQuery& query);
  /// Finds out, beside the run, how earlier ones of `user` have ended: one that was requeued begins
  /// again here, and Slurm soon forgets.
  void FindOutEarlierEndings(const std::string& user);
  /// Stores measurements for later jobs.
  void Measured(const std::string& cluster, const Profile& profile);
  /// The ranks will be launched for another plan or purpose: attempts count from 1 again.
  void BeginLaunches() { launches_before_ = launches_; }
  void Launched(int attempt, const std::string& outcome, const std::string& reason);
  /// The run goes on after this failure, or with a slow node.
  void Failed(const Diagnosis& failure);
  /// The last failure, summary, state, exit code and reason. After it the job is no longer RUNNING.
  void Finish(const RunOutcome& outcome, const RunStatistics& statistics);

  /// The number of repeated launches so far.
  int Retries() const { return retries_; }

 private:
  class File;
  class Row;
  class Trouble;

  JobLedger(const Job& job, const JobRecord& record, std::shared_ptr<Row> row);
  Result<void> OpenRequired(const RecordQueue::Task& open);
  void Keep(LedgerEntry entry);

  std::string store_name_;  // for people
  std::optional<std::chrono::milliseconds>
      most_wait_;                     // for the store; none: it has a budget of its own
  std::weak_ptr<Row> row_;            // used and closed by its queue's thread
  std::shared_ptr<File> file_;        // used by its queue's thread
  std::shared_ptr<Trouble> trouble_;  // of the store
  std::shared_ptr<RecordQueue> to_file_;
  std::unique_ptr<RecordQueue> to_store_;  // goes on to to_file_
  std::int64_t entries_ = 0;
  int launches_ = 0;         // in the whole job so far
  int launches_before_ = 0;  // before the current series
  int retries_ = 0;
};

}  // namespace adaptive_train
