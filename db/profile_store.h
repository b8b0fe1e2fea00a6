// The profile store: past jobs, their plans, measurements and failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/ledger_entry.h"
#include "db/records.h"

namespace adaptive_train {

/// Selects what a job may use of earlier jobs' profiles.
struct ProfileQuery {
  std::string cluster;
  std::vector<std::string> nodes;
  std::vector<std::string> device_kinds;
  std::string model_key;  // empty: no layers
  EpochSeconds now = 0;   // the time as of which failures are weighted
  double failure_half_life_s = kFailureHalfLifeDays * 86400;
  bool links = true;  // false: no links between the nodes, of which there are their number squared
};

/// How a store is opened.
struct StoreOptions {
  std::chrono::milliseconds patience{5000};  // how long one call waits for others
  bool create = true;                        // false: a store that does not exist is an error
  /// Of a service: all calls together, up to and with the first ProfileOf. None: no such limit.
  std::optional<std::chrono::milliseconds> launch_budget = std::nullopt;
};

/// Where runs are recorded and measurements kept. FileStore is a file of one's own,
/// RemoteStore the one that adaptive-traind keeps for all users.
///
/// Threads: one thread per object, and none across fork(); open another object for another thread.
/// Blocking: each call waits for the store for StoreOptions::patience at most.
/// Errors: ExitCode::kStore, one line that names the store. Each write is one transaction: after an
/// error, or after a kill at any moment, it is stored as a whole or not at all.
class ProfileStore {
 public:
  virtual ~ProfileStore() = default;

  /// Stores a job that starts, in state RUNNING. Gives its id, which Record takes.
  virtual Result<std::int64_t> BeginJob(const JobRecord& job) = 0;
  /// Stores what a run records. Nodes, in this order, and a summary replace those stored before, a
  /// launch the one with its attempt's number; plans and failures are appended; figures are stored
  /// as SaveMeasurements does. A job's end is neither kRunning nor kLost. Entries come in the order
  /// of their numbers: if the job has a uid, an entry that is in the store already, also by a
  /// ledger, is skipped.
  virtual Result<void> Record(std::int64_t job_id, const NumberedEntry& entry) = 0;
  /// Stores how a job ended, as found out from outside, unless its state is no longer `was`: its
  /// launcher has then spoken. Keeps an end time that is there.
  virtual Result<void> FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end) = 0;
  /// Adds a ledger's entries for a run to the row with its uid, or to a new row. Skips entries that
  /// are in the store already, those of a job that was removed, and figures that SaveMeasurements
  /// refuses. Returns the number of new entries.
  virtual Result<std::int64_t> TakeIn(const RunLedger& run) = 0;

  /// Jobs in the order of their start times, read in one transaction.
  virtual Result<std::vector<JobRow>> FindJobs(const JobQuery& query) = 0;
  /// In order of time. For a job that is not in the store empty, or an error.
  virtual Result<std::vector<FailureRecord>> FailuresOf(std::int64_t job_id) = 0;
  /// In order of attempts.
  virtual Result<std::vector<LaunchRecord>> LaunchesOf(std::int64_t job_id) = 0;

  /// Adds what was measured in `cluster` to what is stored, figure by figure: see profile_merge.h.
  /// profile.nodes is not looked at: histories come from recorded failures. A figure without a
  /// count is refused.
  virtual Result<void> SaveMeasurements(const std::string& cluster, const Profile& profile) = 0;
  /// What is stored for a cluster's nodes, device kinds and a model, as of `now`. Contains links
  /// with both ends in `nodes`; devices of `device_kinds`, whatever their node; layers of
  /// `model_key` on these kinds, measured in any cluster. Also the failures that count against one
  /// of `nodes`, or a link between two, weighted less the older they are.
  virtual Result<Profile> ProfileOf(const ProfileQuery& query) = 0;
  /// All stored links and devices of a cluster.
  virtual Result<Profile> MeasurementsOf(const std::string& cluster) = 0;
  /// The clusters that have stored links or devices, by name.
  virtual Result<std::vector<std::string>> MeasuredClusters() = 0;

 protected:
  ProfileStore() = default;
  ProfileStore(const ProfileStore&) = default;
  ProfileStore(ProfileStore&&) = default;
  ProfileStore& operator=(const ProfileStore&) = default;
  ProfileStore& operator=(ProfileStore&&) = default;
};

}  // namespace adaptive_train
