// When nodes went down, by Slurm's word.
#pragma once

#include <string>
#include <vector>

#include "db/records.h"

namespace adaptive_train {

class Database;

/// What Slurm tells within this time is one outage: a node is set down, and starts again. Both are
/// taken from ten minutes before a failure to an hour after it (OutageIn).
inline constexpr double kOneOutage = 4200;  // seconds

/// Notes one, unless it is known. Throws DatabaseError; must be called inside a transaction.
void NoteOutage(Database& database, const std::string& cluster, const std::string& node,
                EpochSeconds time);

/// The times of a node's outages after `since`, in order. Throws DatabaseError.
std::vector<EpochSeconds> OutagesOf(Database& database, const std::string& cluster,
                                    const std::string& node, EpochSeconds since);

}  // namespace adaptive_train
