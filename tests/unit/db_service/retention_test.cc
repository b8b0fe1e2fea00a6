// How long the service keeps jobs, speeds and failures.
#include "db/service/retention.h"

#include <thread>

#include "core/seconds.h"
#include "db/database.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::retention_test {
namespace {

class RetentionTest : public ServiceTest {};

TEST_F(RetentionTest, OldJobsAreRemovedWithAllThatBelongsToThemIfAsked) {
  const EpochSeconds now = EpochSecondsNow();
  constexpr double kDay = 86400;
  constexpr int kOld = 120;  // more than are removed at once
  RunLedger first{SampleJob(), {{1, FailureRecord{}}, {2, FailureRecord{}}}};
  first.job.uid = NewRunUid();
  {
    auto file = FileStore::Open(Location());
    ASSERT_TRUE(file) << file.error().message;
    for (int i = 0; i < kOld + 3; ++i) {
      const auto job = file->BeginJob(i == 0 ? first.job : SampleJob());
      ASSERT_TRUE(job) << job.error().message;
      ASSERT_TRUE(file->Record(*job, {1, FailureRecord{}}));
      const std::string snapshot = i < kOld ? "old " + std::to_string(i % 3) : "new";
      ASSERT_TRUE(
          file->Record(*job, {2, std::vector<NodeRecord>{{"n1", "user", "cpu", 1, 1, snapshot}}}));
    }
  }
  Database database(Location().path);
  // The last three: one that ended lately, one that began long ago and ended lately, one that runs.
  const auto set_times = [&](const std::string& which, double start, const std::string& end) {
    database.Run("UPDATE jobs SET start_time = " + std::to_string(start) + ", end_time = " + end +
                 " WHERE id " + which);
  };
  set_times("<= 60", now - 50 * kDay, std::to_string(now - 41 * kDay));
  set_times("BETWEEN 61 AND 120", now - 50 * kDay, "NULL");
  set_times("= 121", now - 9 * kDay, std::to_string(now - 8 * kDay));
  set_times("= 122", now - 50 * kDay, std::to_string(now - 39 * kDay));
  set_times("= 123", now - 2 * kDay, "NULL");
  const auto count = [&](const std::string& what) {
    return database.Number("SELECT COUNT(*) FROM " + what);
  };
  Start();
  ASSERT_TRUE(Connected().MeasuredClusters());
  End(SIGTERM);
  ASSERT_EQ(NextState(), "STOPPING=1");
  EXPECT_EQ(count("jobs"), kOld + 3) << "without the option";
  Start({"--purge-jobs-after", "40"});
  for (int i = 0; i < 600 && count("jobs") > 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(count("jobs"), 3);
  EXPECT_EQ(count("jobs WHERE id > 120"), 3);
  EXPECT_EQ(count("failures"), 3);
  for (int i = 0; i < 600 && count("snapshots") > 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(count("snapshots"), 1);
  EXPECT_EQ(Connected().TakeIn(first), 0) << "the ledger of one that was removed";
  EXPECT_EQ(count("jobs"), 3);
  EXPECT_TRUE(Connected().BeginJob(SampleJob())) << "it writes as ever";
}

TEST_F(RetentionTest, SpeedsAreKeptForTheDaysThatAreAskedFor) {
  ASSERT_TRUE(FileStore::Open(Location()));
  Database database(Location().path);
  const double now = EpochSecondsNow();
  // More than are removed at once, each older than the next: the first 1,200 above 40 days.
  const auto add = [&](const std::string& table, const std::string& columns,
                       const std::string& values) {
    database.Run(
        "WITH RECURSIVE n (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 1299)"
        "INSERT INTO " +
        table + " (" + columns + ", count, spread, measured_at) SELECT " + values + ", 1, 0, " +
        std::to_string(now) +
        " - (CASE WHEN i < 1200 THEN 41 ELSE 39 END) * 86400"
        " FROM n");
  };
  add("link_profiles", "cluster, from_node, to_node, owner, latency_s, bytes_per_second",
      "'c', 'n1', 'n' || i, 7, 1, 1");
  add("device_profiles",
      "cluster, device_kind, node, owner, product_flops, bytes_per_second, transfer_s_per_byte",
      "'c', 'k', 'n' || i, 7, 1, 1, 0");
  add("layer_profiles",
      "owner, device_kind, model, layer, micro_batch, forward_s, backward_s, update_s,"
      " gradient_variance, weight_gradients_s",
      "7, 'k', 'm', 'l', i, 1, 1, 1, 1, 0");
  const auto count = [&](const std::string& what) {
    return database.Number("SELECT COUNT(*) FROM " + what);
  };
  Start({"--purge-jobs-after", "40"});
  ASSERT_TRUE(Connected().MeasuredClusters());
  End(SIGTERM);
  ASSERT_EQ(NextState(), "STOPPING=1");
  EXPECT_EQ(count("link_profiles"), 1300) << "these are no jobs";
  Start({"--purge-figures-after", "40"});
  const std::vector<std::string> tables{"link_profiles", "device_profiles", "layer_profiles"};
  for (int i = 0; i < 600 && count(tables.back()) > 100; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const std::string& table : tables) {
    EXPECT_EQ(count(table), 100) << table;
    EXPECT_EQ(count(table + " WHERE measured_at < " + std::to_string(now - 40 * 86400)), 0);
  }
  EXPECT_TRUE(Connected().MeasuredClusters()) << "it answers as ever";
}

TEST_F(RetentionTest, FailuresOfNodesOutliveTheirJobsWithoutWhatIsPrivate) {
  const EpochSeconds now = EpochSecondsNow();
  constexpr double kDay = 86400;
  const auto failure_at = [](double time, Blamed blamed) {
    FailureRecord failure;
    failure.time = time;
    failure.host = "n1";
    failure.kind = FailureKind::kNodeSilent;
    failure.operation = failure.peer = failure.cause = "private";
    failure.rank = failure.step = 1;
    failure.blamed = blamed;
    return failure;
  };
  {
    auto file = FileStore::Open(Location());
    const auto job = file->BeginJob(SampleJob());
    ASSERT_TRUE(job && file->Record(*job, {1, failure_at(now - 50 * kDay, Blamed::kNode)}));
    ASSERT_TRUE(file->Record(*job, {2, failure_at(now - 42 * kDay, Blamed::kNode)}));
    ASSERT_TRUE(file->Record(*job, {3, failure_at(now - 42 * kDay, Blamed::kNobody)}));
  }
  Database database(Location().path);
  database.Run("UPDATE jobs SET start_time = " + std::to_string(now - 51 * kDay) +
               ", end_time = " + std::to_string(now - 41 * kDay));
  const auto await = [&](const std::string& what, std::int64_t rows) {
    const auto count = [&] { return database.Number("SELECT COUNT(*) FROM " + what); };
    for (int i = 0; i < 600 && count() != rows; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(count(), rows) << what;
  };
  Start({"--purge-jobs-after", "40"});
  await("jobs", 0);
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM failures"), 2) << "those that blame the node";
  for (const char* const until : {"43", "46"})
    database.Run("INSERT INTO presence (cluster, node, owner, since, until) VALUES ('alpha', 'n" +
                 std::string(until) + "', 7, 0, " + std::to_string(now) + " - 86400 * " + until +
                 ")");
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM failures WHERE job_id IS NULL AND rank IS NULL"
                            " AND step IS NULL AND operation || peer || cause = ''"),
            2);
  EXPECT_TRUE(Connected().ProfileOf({"alpha", {"n1"}, {}, "", now}));
  End(SIGTERM);
  ASSERT_EQ(NextState(), "STOPPING=1");
  Start({"--purge-figures-after", "40"});
  JobRecord kept = SampleJob();
  kept.start_time = now;
  ASSERT_TRUE(Connected().BeginJob(kept));
  ASSERT_TRUE(Connected().Record(2, {1, failure_at(now - 50 * kDay, Blamed::kNode)}));
  End(SIGTERM);
  ASSERT_EQ(NextState(), "STOPPING=1");
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM presence"), 2) << "failures may need them";
  Start(
      {"--purge-figures-after", "40", "--purge-failures-after", "45", "--purge-jobs-after", "44"});
  await("failures", 2);
  await("presence", 1);
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM failures WHERE time < " +
                            std::to_string(now - 45 * kDay)),
            1)
      << "that of a job which is kept";
}

}  // namespace
}  // namespace adaptive_train::retention_test
