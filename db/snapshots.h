// Nodes' snapshots, each stored once.
#pragma once

#include <string>

#include "db/ledger_entry.h"

namespace adaptive_train {

class Database;

/// What lasts of a snapshot (docs/formats.md): all but when it was taken, how long that took, what
/// memory was free and what the job may use. Text that is no JSON stays as it is.
std::string LastingPartOf(const std::string& snapshot);

/// Leaves of the snapshots in `entry` what lasts. Whoever stores an entry does so before, outside
/// of the transaction: a snapshot may have many kilobytes.
void KeepWhatLasts(LedgerEntry& entry);

/// Stores the text if it is not there, and returns its hash. Throws DatabaseError; must be called
/// inside a transaction.
std::string StoreSnapshot(Database& database, const std::string& snapshot);

}  // namespace adaptive_train
