// Brings the schema of an open SQLite file up to date, step by step.
#pragma once

#include <string>
#include <vector>

namespace SQLite {
class Database;
}

namespace adaptive_train {

/// One step: `sql` takes a file from user_version - 1 to user_version.
struct Migration {
  int user_version = 0;
  std::string sql;
};

/// The steps that db/schema holds, in order; the last one's version is what this program reads and
/// writes.
const std::vector<Migration>& SchemaMigrations();

/// The schema version that a file is at; 0 for one without tables.
int UserVersion(SQLite::Database& database);

/// Applies the steps that the file lacks, each in a write transaction of its own that looks at the
/// version once more, so that several processes may do this at once. Waits for other writers as
/// long as the busy timeout says. Throws SQLite::Exception; the steps done so far stay, the failing
/// one leaves no trace.
void Migrate(SQLite::Database& database, const std::vector<Migration>& migrations);

}  // namespace adaptive_train
