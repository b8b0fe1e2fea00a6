// Brings the schema of an open SQLite file up to date, step by step.
#pragma once

#include <string>
#include <vector>

namespace adaptive_train {

class Database;

/// One step: `sql` takes a file from user_version - 1 to user_version.
struct Migration {
  int user_version = 0;
  std::string sql;
};

/// The steps of db/schema, in order. The last version is the one this program reads and writes.
const std::vector<Migration>& SchemaMigrations();

/// The schema version of a file; 0 without tables.
int UserVersion(Database& database);

/// Applies the missing steps. Each runs in its own write transaction that checks the version again,
/// so several processes may migrate at once. Waits for other writers up to the busy timeout. Throws
/// DatabaseError; completed steps stay, the failing one leaves no trace.
void Migrate(Database& database, const std::vector<Migration>& migrations);

}  // namespace adaptive_train
