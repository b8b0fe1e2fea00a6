// How long adaptive-traind keeps jobs.
#include "db/service/retention.h"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>

#include "db/statement.h"

namespace adaptive_train {
namespace {

/// A job starts before it ends, so that the index by start finds all that can be old enough.
constexpr const char* kPurgeJobs =
    "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE start_time < ?1 "
    "AND COALESCE(end_time, start_time) < ?1 ORDER BY start_time LIMIT ?2)";

}  // namespace

std::int64_t PurgeJobs(SQLite::Database& database, double before, std::int64_t limit) {
  SQLite::Statement purge(database, kPurgeJobs);
  BindAll(purge, before, limit);
  return purge.exec();
}

}  // namespace adaptive_train
