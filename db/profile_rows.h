// Reads and writes the rows of measurements in an open database.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/owner.h"
#include "db/presence.h"
#include "db/profile_store.h"

namespace adaptive_train {

class Database;

// All throw DatabaseError and must be called inside one transaction.

/// Merges each figure with `owner`'s row (profile_merge.h). Fails on a figure that is not finite,
/// not positive or without measurements (count 0).
Result<void> MergeProfile(Database& database, Owner owner, const std::string& cluster,
                          const Profile& profile);

// Skips invalid rows (edited by hand).
/// Layers are those of `owner`. Links and devices are told from what all users measured whose
/// reports count (told_figures.h), failures from what they reported (failure_histories.h).
Profile ReadProfile(Database& database, Owner owner, const ProfileQuery& query,
                    Presence presence = {});
/// All links and devices of a cluster, as they are told to `owner` at the time `now`.
Profile ReadMeasurements(Database& database, Owner owner, const std::string& cluster,
                         EpochSeconds now, Presence presence = {});
/// Whose measurements make a cluster's name known: everybody's, or those of `owner`; by Slurm's
/// word (db/presence.h) a cluster is known in any case.
enum class ClustersOf { kAll, kSeenBySlurm };
std::vector<std::string> ReadClusters(Database& database, Owner owner, ClustersOf of);

}  // namespace adaptive_train
