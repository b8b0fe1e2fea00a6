// Brings the schema of an open SQLite file up to date, step by step.
#include "db/migration.h"

#include <string>

#include "db/database.h"

namespace adaptive_train {

int UserVersion(Database& database) { return database.Number("PRAGMA user_version"); }

void Migrate(Database& database, const std::vector<Migration>& migrations) {
  for (const Migration& step : migrations) {
    if (UserVersion(database) >= step.user_version) continue;
    Transaction transaction(database, Transaction::Kind::kWrites);
    // Another process may have done this step since the check above.
    if (UserVersion(database) >= step.user_version) continue;
    database.Run(step.sql);
    database.Run("PRAGMA user_version = " + std::to_string(step.user_version));
    transaction.Commit();
  }
}

}  // namespace adaptive_train
