// Writes the rows of a job into an open database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/ledger_entry.h"
#include "db/owner.h"

namespace adaptive_train {

class Database;

// All throw DatabaseError and must be called inside one transaction.

/// Returns the id of the new row, in state RUNNING.
std::int64_t InsertJob(Database& database, Owner owner, const JobRecord& job);

/// None: the job is not in the store.
std::optional<Owner> OwnerOf(Database& database, std::int64_t job_id);
/// Empty: it has none, or is not in the store.
std::string AccountOf(Database& database, std::int64_t job_id);
/// Of the run with this uid.
std::optional<Owner> OwnerOfRun(Database& database, const std::string& uid);

/// One overload for each alternative of LedgerEntry. ProfileStore says what a second write does.
Result<void> WriteRow(Database& database, std::int64_t job_id,
                      const std::vector<NodeRecord>& nodes);
Result<void> WriteRow(Database& database, std::int64_t job_id, const PlanRecord& plan);
Result<void> WriteRow(Database& database, std::int64_t job_id, const LaunchRecord& launch);
Result<void> WriteRow(Database& database, std::int64_t job_id, const FailureRecord& failure);
Result<void> WriteRow(Database& database, std::int64_t job_id, const MeasuredRecord& measured);
Result<void> WriteRow(Database& database, std::int64_t job_id, const SummaryRecord& summary);
Result<void> WriteRow(Database& database, std::int64_t job_id, const JobEnd& end);

// Snapshots are stored as they are: KeepWhatLasts (db/snapshots.h) goes before.

/// Implements ProfileStore::Record.
Result<void> WriteEntry(Database& database, std::int64_t job_id, const NumberedEntry& entry);

/// Implements ProfileStore::FoundOut.
void WriteFoundEnd(Database& database, std::int64_t job_id, JobState was, const FoundEnd& end);

/// Slurm's word for what the owner's runs in one of its jobs are charged to.
struct ChargedJob {
  std::string cluster;
  std::int64_t slurm_job_id = 0, restart_count = 0;
  std::string account;
  EpochSeconds since = 0;  // runs that began before are of a job that had the number earlier
};
void WriteAccount(Database& database, Owner owner, const ChargedJob& job);

/// Implements ProfileStore::TakeIn.
/// A new row is `owner`'s.
Result<std::int64_t> WriteLedger(Database& database, Owner owner, const RunLedger& run);

}  // namespace adaptive_train
