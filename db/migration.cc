// Brings the schema of an open SQLite file up to date, step by step.
#include "db/migration.h"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Transaction.h>

#include <string>

namespace adaptive_train {

int UserVersion(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt();
}

void Migrate(SQLite::Database& database, const std::vector<Migration>& migrations) {
  for (const Migration& step : migrations) {
    if (UserVersion(database) >= step.user_version) continue;
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Another process may have done this step since the check above.
    if (UserVersion(database) >= step.user_version) continue;
    database.exec(step.sql);
    database.exec("PRAGMA user_version = " + std::to_string(step.user_version));
    transaction.commit();
  }
}

}  // namespace adaptive_train
