// A profile store in an SQLite file of one's own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "db/profile_store.h"
#include "db/store_location.h"

namespace adaptive_train {

class Database;

/// One SQLite file, opened. Several processes may have the same file open on one host (WAL). A call
/// waits only for other writers. No call deletes or moves a store's file.
class FileStore final : public ProfileStore {
 public:
  /// Opens the store and brings its schema up to date. Creates missing folders (0700) and the file
  /// (0600). Refuses network file systems, files with a newer schema or of another program, and
  /// corrupt files; a refused file is not changed. Reads the whole file only where it has a log:
  /// its last user was killed, or others use it. Damage elsewhere is an error of the call that
  /// meets it.
  static Result<FileStore> Open(const StoreLocation& location, const StoreOptions& options = {});

  /// A store without a file: its content ends with the object.
  static Result<FileStore> InMemory();

  FileStore(FileStore&&) noexcept;
  FileStore& operator=(FileStore&&) noexcept;
  ~FileStore() override;

  /// The file; ":memory:" for a store without one.
  const std::filesystem::path& Path() const { return location_.path; }

  Result<std::int64_t> BeginJob(const JobRecord& job) override;
  Result<void> Record(std::int64_t job_id, const NumberedEntry& entry) override;
  Result<void> FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end) override;
  Result<std::int64_t> TakeIn(const RunLedger& run) override;
  Result<std::vector<JobRow>> FindJobs(const JobQuery& query) override;
  Result<std::vector<FailureRecord>> FailuresOf(std::int64_t job_id) override;
  Result<std::vector<LaunchRecord>> LaunchesOf(std::int64_t job_id) override;
  Result<void> SaveMeasurements(const std::string& cluster, const Profile& profile) override;
  Result<Profile> ProfileOf(const ProfileQuery& query) override;
  Result<Profile> MeasurementsOf(const std::string& cluster) override;
  Result<std::vector<std::string>> MeasuredClusters() override;

 private:
  FileStore(StoreLocation location, std::chrono::milliseconds patience,
            std::unique_ptr<Database> database);

  /// Runs `body`, which returns a Result, in one transaction that commits only if all went well.
  template <class Body>
  auto Transact(bool writes, const char* doing, const Body& body) -> decltype(body());

  StoreLocation location_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<Database> database_;
};

}  // namespace adaptive_train
