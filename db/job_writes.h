// Writes the rows of a job into an open database.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "db/ledger_entry.h"

namespace SQLite {
class Database;
}

namespace adaptive_train {

// All throw SQLite::Exception and must be called inside one transaction.

/// Returns the id of the new row, in state RUNNING.
std::int64_t InsertJob(SQLite::Database& database, const JobRecord& job);

/// One overload for each alternative of LedgerEntry. ProfileStore says what a second write does.
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id,
                      const std::vector<NodeRecord>& nodes);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id, const PlanRecord& plan);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id, const LaunchRecord& launch);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id,
                      const FailureRecord& failure);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id,
                      const MeasuredRecord& measured);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id,
                      const SummaryRecord& summary);
Result<void> WriteRow(SQLite::Database& database, std::int64_t job_id, const JobEnd& end);

/// Implements ProfileStore::Record.
Result<void> WriteEntry(SQLite::Database& database, std::int64_t job_id,
                        const NumberedEntry& entry);

/// Implements ProfileStore::FoundOut.
void WriteFoundEnd(SQLite::Database& database, std::int64_t job_id, JobState was,
                   const FoundEnd& end);

/// Implements ProfileStore::TakeIn.
Result<std::int64_t> WriteLedger(SQLite::Database& database, const RunLedger& run);

}  // namespace adaptive_train
