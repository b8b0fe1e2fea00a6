// When nodes went down, by Slurm's word.
#pragma once

#include <string>
#include <vector>

#include "db/records.h"

namespace adaptive_train {

class Database;

/// A node was set down at `time`, or has started then and must have been down before.
struct Outage {
  EpochSeconds time = 0;
  bool started = false;
  bool operator==(const Outage&) const = default;
};

/// What Slurm tells within this time is of one outage.
inline constexpr double kOneOutage = 3600;  // seconds
/// A start that comes this soon behind a known outage is its end. A repair may take longer: then
/// the node counts twice.
inline constexpr double kLongestOutage = 86400;  // seconds

/// Notes one, unless it is known. Throws DatabaseError; must be called inside a transaction.
void NoteOutage(Database& database, const std::string& cluster, const std::string& node,
                const Outage& outage);

/// The times of a node's outages after `since`, in order. Throws DatabaseError.
std::vector<EpochSeconds> OutagesOf(Database& database, const std::string& cluster,
                                    const std::string& node, EpochSeconds since);

}  // namespace adaptive_train
