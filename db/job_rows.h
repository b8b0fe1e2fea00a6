// Reads stored records back out of an open database.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "db/records.h"

namespace SQLite {
class Database;
}

namespace adaptive_train {

// All throw SQLite::Exception; inside one transaction they see one moment. They fail with
// ExitCode::kStore where a stored word is none of ours.
Result<std::vector<JobRow>> ReadJobRows(SQLite::Database& database, const JobQuery& query);
Result<std::vector<LaunchRecord>> ReadLaunches(SQLite::Database& database, std::int64_t job_id);
std::vector<FailureRecord> ReadFailures(SQLite::Database& database, std::int64_t job_id);

}  // namespace adaptive_train
