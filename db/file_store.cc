#include "db/file_store.h"

#include <cassert>
#include <string>
#include <utility>

#include "core/seconds.h"
#include "db/database.h"
#include "db/job_rows.h"
#include "db/job_writes.h"
#include "db/migration.h"
#include "db/open_database.h"
#include "db/profile_rows.h"
#include "db/snapshots.h"
#include "db/store_error.h"

namespace adaptive_train {

FileStore::FileStore(StoreLocation location, std::chrono::milliseconds patience,
                     std::unique_ptr<Database> database)
    : location_(std::move(location)), patience_(patience), database_(std::move(database)) {}

FileStore::FileStore(FileStore&&) noexcept = default;
FileStore& FileStore::operator=(FileStore&&) noexcept = default;
FileStore::~FileStore() = default;

Result<FileStore> FileStore::Open(const StoreLocation& location, const StoreOptions& options) {
  return OpenDatabase(location, options.patience, options.create, SchemaMigrations())
      .map([&](OpenedDatabase opened) {
        return FileStore(std::move(opened.location), options.patience, std::move(opened.database));
      });
}

Result<FileStore> FileStore::InMemory() {
  return OpenMemoryDatabase(SchemaMigrations()).map([](OpenedDatabase opened) {
    return FileStore(std::move(opened.location), std::chrono::milliseconds(0),
                     std::move(opened.database));
  });
}

template <class Body>
auto FileStore::Transact(bool writes, const char* doing, const Body& body) -> decltype(body()) {
  try {
    Transaction transaction(*database_,
                            writes ? Transaction::Kind::kWrites : Transaction::Kind::kReads);
    auto result = body();
    if (result) transaction.Commit();
    return result;
  } catch (const DatabaseError& exception) {
    return tl::unexpected(StoreError(location_.path, doing, patience_, exception, database_.get()));
  }
}

Result<std::int64_t> FileStore::BeginJob(const JobRecord& job) {
  return Transact(true, "storing a job",
                  [&]() -> Result<std::int64_t> { return InsertJob(*database_, kFileOwner, job); });
}

Result<void> FileStore::Record(std::int64_t job_id, const NumberedEntry& entry) {
  [[maybe_unused]] const auto* end = std::get_if<JobEnd>(&entry.entry);
  assert(end == nullptr || (end->state != JobState::kRunning && end->state != JobState::kLost));
  NumberedEntry kept = entry;
  KeepWhatLasts(kept.entry);
  return Transact(true, "storing what a run records",
                  [&] { return WriteEntry(*database_, job_id, kept); });
}

Result<void> FileStore::FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end) {
  return Transact(true, "storing how a job ended", [&]() -> Result<void> {
    WriteFoundEnd(*database_, job_id, was, end);
    return {};
  });
}

Result<std::int64_t> FileStore::TakeIn(const RunLedger& run) {
  RunLedger kept = run;
  for (NumberedEntry& entry : kept.entries) KeepWhatLasts(entry.entry);
  return Transact(true, "taking in a ledger",
                  [&] { return WriteLedger(*database_, kFileOwner, kept); });
}

Result<std::vector<JobRow>> FileStore::FindJobs(const JobQuery& query) {
  return Transact(false, "reading jobs",
                  [&] { return ReadJobRows(*database_, std::nullopt, query); });
}

Result<std::vector<FailureRecord>> FileStore::FailuresOf(std::int64_t job_id) {
  return Transact(false, "reading failures", [&]() -> Result<std::vector<FailureRecord>> {
    return ReadFailures(*database_, job_id);
  });
}

Result<std::vector<LaunchRecord>> FileStore::LaunchesOf(std::int64_t job_id) {
  return Transact(false, "reading launches", [&] { return ReadLaunches(*database_, job_id); });
}

Result<void> FileStore::SaveMeasurements(const std::string& cluster, const Profile& profile) {
  return Transact(true, "storing what was measured",
                  [&] { return MergeProfile(*database_, kFileOwner, cluster, profile); });
}

Result<Profile> FileStore::ProfileOf(const ProfileQuery& query) {
  return Transact(false, "reading what was measured",
                  [&]() -> Result<Profile> { return ReadProfile(*database_, kFileOwner, query); });
}

Result<Profile> FileStore::MeasurementsOf(const std::string& cluster) {
  return Transact(false, "reading what was measured", [&]() -> Result<Profile> {
    return ReadMeasurements(*database_, kFileOwner, cluster, EpochSecondsNow());
  });
}

Result<std::vector<std::string>> FileStore::MeasuredClusters() {
  return Transact(false, "reading what was measured", [&]() -> Result<std::vector<std::string>> {
    return ReadClusters(*database_, kFileOwner, ClustersOf::kAll);
  });
}

}  // namespace adaptive_train
