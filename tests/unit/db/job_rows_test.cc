// What a question about jobs costs in a large store.
#include "db/job_rows.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "db/database.h"
#include "db/job_writes.h"
#include "db/migration.h"
#include "db/open_database.h"

namespace adaptive_train::job_rows_test {
namespace {

constexpr Owner kAnn = 1001, kBob = 1002;

/// A store of so many jobs of each of two users, ten seconds apart.
OpenedDatabase StoreOf(std::int64_t jobs) {
  auto opened = OpenMemoryDatabase(SchemaMigrations());
  if (!opened) throw std::runtime_error(opened.error().message);
  Database& database = *opened->database;
  Transaction transaction(database, Transaction::Kind::kWrites);
  for (std::int64_t i = 0; i < jobs; ++i) {
    for (const Owner owner : {kAnn, kBob}) {
      JobRecord job;
      job.cluster = "alpha";
      job.slurm_job_id = 2 * i + (owner == kAnn ? 1 : 2);
      job.start_time = job.submit_time = 1e9 + 10.0 * static_cast<double>(i);
      job.user = owner == kAnn ? "ann" : "bob";
      InsertJob(database, owner, job);
    }
  }
  transaction.Commit();
  return std::move(*opened);
}

/// Steps of SQLite's machine (sqlite.org/opcode.html) that the question takes.
std::int64_t StepsOf(Database& database, const JobQuery& query, std::size_t rows) {
  std::int64_t steps = 0;
  const auto count = [](void* to) { return ++*static_cast<std::int64_t*>(to), 0; };
  sqlite3_progress_handler(database.handle(), 1, count, &steps);
  const auto found = ReadJobRows(database, JobsOf{kAnn}, query);
  sqlite3_progress_handler(database.handle(), 0, nullptr, nullptr);
  EXPECT_TRUE(found && found->size() == rows);
  return steps;
}

TEST(JobRows, AQuestionCostsNoMoreInALargeStore) {
  JobQuery newest, named, local;
  newest.all_users = named.all_users = local.all_users = true;
  newest.newest = 20;
  named.ids = {{false, 41, std::nullopt}};
  local.ids = {{true, 41, std::nullopt}, {false, 43, std::nullopt}};
  const auto small = StoreOf(100), large = StoreOf(2000);
  EXPECT_LT(StepsOf(*large.database, newest, 20), 2 * StepsOf(*small.database, newest, 20));
  EXPECT_LT(StepsOf(*large.database, named, 1), 2 * StepsOf(*small.database, named, 1));
  EXPECT_LT(StepsOf(*large.database, local, 1), 2 * StepsOf(*small.database, local, 1));
}

}  // namespace
}  // namespace adaptive_train::job_rows_test
