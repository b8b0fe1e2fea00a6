// Reads and writes the rows of what was measured in an open database.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/profile_store.h"

namespace adaptive_train {

// All throw SQLite::Exception; to be run in one transaction.

/// Merges each figure with its row (profile_merge.h). Fails on a figure that is not finite or not
/// positive, or that nothing stands behind (count 0).
Result<void> MergeProfile(SQLite::Database& database, const std::string& cluster,
                          const Profile& profile);

// Rows that cannot be right (changed by hand) are left out.
Profile ReadProfile(SQLite::Database& database, const ProfileQuery& query);
/// All links and devices of a cluster.
Profile ReadMeasurements(SQLite::Database& database, const std::string& cluster);
std::vector<std::string> ReadClusters(SQLite::Database& database);

}  // namespace adaptive_train
