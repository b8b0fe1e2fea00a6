// Reads and writes the rows of measurements in an open database.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/owner.h"
#include "db/profile_store.h"

namespace SQLite {
class Database;
}

namespace adaptive_train {

// All throw SQLite::Exception and must be called inside one transaction.

/// Merges each figure with its row (profile_merge.h). Fails on a figure that is not finite, not
/// positive or without measurements (count 0). Layers are `owner`'s, links and devices everybody's.
Result<void> MergeProfile(SQLite::Database& database, Owner owner, const std::string& cluster,
                          const Profile& profile);

// Skips invalid rows (edited by hand).
/// Layers are those of `owner`.
Profile ReadProfile(SQLite::Database& database, Owner owner, const ProfileQuery& query);
/// All links and devices of a cluster.
Profile ReadMeasurements(SQLite::Database& database, const std::string& cluster);
std::vector<std::string> ReadClusters(SQLite::Database& database);

}  // namespace adaptive_train
