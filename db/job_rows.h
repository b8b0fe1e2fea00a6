// Reads stored records back out of an open database.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/result.h"
#include "db/owner.h"
#include "db/records.h"

namespace adaptive_train {

class Database;

// All throw DatabaseError. Called inside one transaction, they see one consistent state. They
// fail with ExitCode::kStore if a stored word is unknown.
/// Those of `owner`; none: of all.
Result<std::vector<JobRow>> ReadJobRows(Database& database, const std::optional<JobsOf>& of,
                                        const JobQuery& query);
Result<std::vector<LaunchRecord>> ReadLaunches(Database& database, std::int64_t job_id);
Result<std::vector<FailureRecord>> ReadFailures(Database& database, std::int64_t job_id);

}  // namespace adaptive_train
