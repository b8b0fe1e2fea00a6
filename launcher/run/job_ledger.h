// One job's rows in the profile store, as the launcher fills them in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/plan.h"
#include "db/profile_store.h"
#include "launcher/nodes/allocation.h"
#include "launcher/report/run_statistics.h"
#include "launcher/steps/diagnosis.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// A store that fails while a run is under way does not end the run: the first error is kept, and
/// the run's exit code tells of it at the end. One thread; calls may block for the store's busy
/// timeout.
class JobLedger {
 public:
  struct Job {
    const Allocation* allocation = nullptr;
    std::string run_dir;
    std::string config;
    std::string options;
  };

  /// Opens the store and begins the job. Fails with kStore.
  static Result<JobLedger> Begin(const StoreLocation& location, const Job& job);

  void Nodes(const std::vector<Node>& nodes);
  void Planned(const Plan& plan);
  /// What earlier jobs have left; empty if the store fails.
  Profile Known(const ProfileQuery& query);
  /// Keeps what was measured for later jobs.
  void Measured(const std::string& cluster, const Profile& profile);
  /// The ranks are about to be launched for another plan or purpose: attempts count from 1 again.
  void BeginLaunches() { launches_before_ = launches_; }
  void Launched(int attempt, const std::string& outcome, const std::string& reason);
  /// Failures, summary, state and exit code. After it the job is no longer RUNNING.
  void Finish(const RunOutcome& outcome, const RunStatistics& statistics);

  /// Launches that had to be repeated so far.
  int Retries() const { return retries_; }
  /// The first error that a call above met; none if all is stored.
  const std::optional<Error>& Trouble() const { return trouble_; }

 private:
  JobLedger(ProfileStore store, std::int64_t id) : store_(std::move(store)), id_(id) {}
  template <class T>
  void Keep(const Result<T>& result) {
    if (!result && !trouble_) trouble_ = result.error();
  }

  ProfileStore store_;
  std::int64_t id_;
  int launches_ = 0;         // so far, through the whole job
  int launches_before_ = 0;  // of those, before the present series
  int retries_ = 0;
  std::optional<Error> trouble_;
};

}  // namespace adaptive_train
