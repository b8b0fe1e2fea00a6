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

class StoreDatabase;

// All throw SQLite::Exception and must be called inside one transaction.

/// Returns the id of the new row, in state RUNNING.
std::int64_t InsertJob(StoreDatabase& database, Owner owner, const JobRecord& job);

/// None: the job is not in the store.
std::optional<Owner> OwnerOf(StoreDatabase& database, std::int64_t job_id);
/// Of the run with this uid.
std::optional<Owner> OwnerOfRun(StoreDatabase& database, const std::string& uid);

/// One overload for each alternative of LedgerEntry. ProfileStore says what a second write does.
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id,
                      const std::vector<NodeRecord>& nodes);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const PlanRecord& plan);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const LaunchRecord& launch);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const FailureRecord& failure);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const MeasuredRecord& measured);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const SummaryRecord& summary);
Result<void> WriteRow(StoreDatabase& database, std::int64_t job_id, const JobEnd& end);

/// Implements ProfileStore::Record.
Result<void> WriteEntry(StoreDatabase& database, std::int64_t job_id, const NumberedEntry& entry);

/// Implements ProfileStore::FoundOut.
void WriteFoundEnd(StoreDatabase& database, std::int64_t job_id, JobState was, const FoundEnd& end);

/// Implements ProfileStore::TakeIn.
/// A new row is `owner`'s.
Result<std::int64_t> WriteLedger(StoreDatabase& database, Owner owner, const RunLedger& run);

}  // namespace adaptive_train
