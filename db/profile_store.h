// The profile store: past jobs, their plans, measurements and failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/ledger_entry.h"
#include "db/records.h"
#include "db/store_location.h"

namespace SQLite {
class Database;
}

namespace adaptive_train {

/// Selects what a job may use of earlier jobs' profiles.
struct ProfileQuery {
  std::string cluster;
  std::vector<std::string> nodes;
  std::vector<std::string> device_kinds;
  std::string model_key;  // empty: no layers
  EpochSeconds now = 0;   // the time as of which failures are weighted
  double failure_half_life_s = kFailureHalfLifeDays * 86400;
};

/// One SQLite file, opened. Several processes may have the same file open on one host (WAL).
///
/// Threads: one thread per object, and none across fork(); open another object for another thread.
/// Blocking: each call waits for other writers for busy_timeout at most.
/// Errors: ExitCode::kStore, one line that names the file. Each write is one transaction: after an
/// error, or after a kill at any moment, it is in the file as a whole or not at all. No call
/// deletes or moves a store's file.
class ProfileStore {
 public:
  struct OpenOptions {
    std::chrono::milliseconds busy_timeout{5000};  // how long one call waits for a lock
    bool create = true;                            // false: a file that does not exist is an error
  };

  /// Opens the store and brings its schema up to date. Creates missing folders (0700) and the file
  /// (0600). Refuses network file systems, files with a newer schema or of another program, and
  /// corrupt files; a refused file is not changed. Reads the whole file only where it has a log:
  /// its last user was killed, or others use it. Damage elsewhere is an error of the call that
  /// meets it.
  static Result<ProfileStore> Open(const StoreLocation& location, const OpenOptions& options);
  static Result<ProfileStore> Open(const StoreLocation& location) {
    return Open(location, OpenOptions{});
  }

  /// A store without a file: its content ends with the object.
  static Result<ProfileStore> InMemory();

  ProfileStore(ProfileStore&&) noexcept;
  ProfileStore& operator=(ProfileStore&&) noexcept;
  ~ProfileStore();

  /// The file; ":memory:" for a store without one.
  const std::filesystem::path& Path() const { return location_.path; }

  /// Stores a job that starts, in state RUNNING. Gives its id, which Record takes.
  Result<std::int64_t> BeginJob(const JobRecord& job);
  /// Stores what a run records. Nodes, in this order, and a summary replace those stored before, a
  /// launch the one with its attempt's number; plans and failures are appended; figures are stored
  /// as SaveMeasurements does. A job's end is neither kRunning nor kLost. Entries come in the order
  /// of their numbers: if the job has a uid, an entry that is in the store already, also by a
  /// ledger, is skipped.
  Result<void> Record(std::int64_t job_id, const NumberedEntry& entry);
  /// Stores how a job ended, as found out from outside, unless its state is no longer `was`: its
  /// launcher has then spoken. Keeps an end time that is there.
  Result<void> FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end);
  /// Adds a ledger's entries for a run to the row with its uid, or to a new row. Skips entries that
  /// are in the store already and figures that SaveMeasurements refuses. Returns the number of new
  /// entries.
  Result<std::int64_t> TakeIn(const RunLedger& run);

  /// Jobs in the order of their start times, read in one transaction.
  Result<std::vector<JobRow>> FindJobs(const JobQuery& query);
  /// In order of time; empty for a job that is not in the store.
  Result<std::vector<FailureRecord>> FailuresOf(std::int64_t job_id);
  /// In order of attempts.
  Result<std::vector<LaunchRecord>> LaunchesOf(std::int64_t job_id);

  /// Adds what was measured in `cluster` to what is stored, figure by figure: see
  /// profile_merge.h. profile.nodes is not looked at: histories come from recorded failures. A figure
  /// without a count is refused.
  Result<void> SaveMeasurements(const std::string& cluster, const Profile& profile);
  /// What is stored for a cluster's nodes, device kinds and a model, as of `now`. Contains links
  /// with both ends in `nodes`; devices of `device_kinds`, whatever their node; layers of
  /// `model_key` on these kinds, measured in any cluster. Also the failures that count against one
  /// of `nodes`, or a link between two, weighted less the older they are.
  Result<Profile> ProfileOf(const ProfileQuery& query);
  /// All stored links and devices of a cluster.
  Result<Profile> MeasurementsOf(const std::string& cluster);
  /// The clusters that have stored links or devices, by name.
  Result<std::vector<std::string>> MeasuredClusters();

 private:
  ProfileStore(StoreLocation location, std::chrono::milliseconds busy_timeout,
               std::unique_ptr<SQLite::Database> database);

  /// Runs `body`, which returns a Result, in one transaction that commits only if all went well.
  template <class Body>
  auto Transact(bool writes, const char* doing, const Body& body) -> decltype(body());

  StoreLocation location_;
  std::chrono::milliseconds busy_timeout_;
  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace adaptive_train
