// Schema steps on real files: from nothing, from an older version, and one that fails half way.
#include "db/migration.h"
#include "db/database.h"

#include "db/open_database.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::migration_test {
namespace {

const Migration kFirst{
    1, "PRAGMA application_id = 0x41547073; CREATE TABLE t (a); INSERT INTO t VALUES (7);"};
const Migration kSecond{2, "ALTER TABLE t ADD COLUMN b; UPDATE t SET b = a + 1;"};
const Migration kThird{3, "CREATE TABLE u (c); INSERT INTO u SELECT b FROM t;"};
const Migration kBroken{2, "ALTER TABLE t ADD COLUMN b; UPDATE nowhere SET b = 1;"};

class MigrationTest : public StoreTest {
 protected:
  Result<OpenedDatabase> OpenWith(const std::vector<Migration>& migrations) const {
    return OpenDatabase(Location(), std::chrono::seconds(5), true, migrations);
  }
  std::string PathText() const { return Location().path.string(); }
};

TEST_F(MigrationTest, TheShippedStepsAreNumberedFromOneWithoutGaps) {
  int expected = 0;
  for (const Migration& step : SchemaMigrations()) EXPECT_EQ(step.user_version, ++expected);
  EXPECT_GE(expected, 1);
}

TEST_F(MigrationTest, TakesAFileWithoutTablesToTheNewestVersion) {
  {
    Database empty(PathText(), Database::Mode::kCreate);
    empty.Run("VACUUM");  // writes a header, of version 0
  }
  ASSERT_GT(std::filesystem::file_size(Location().path), 0u);
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE(store->BeginJob(SampleJob()));
  Database database(PathText());
  EXPECT_EQ(UserVersion(database), SchemaMigrations().back().user_version);
}

TEST_F(MigrationTest, FailuresOfOlderProgramsGetTheirKind) {
  const auto& steps = SchemaMigrations();
  {
    const auto old = OpenWith({steps.begin(), steps.begin() + 4});
    ASSERT_TRUE(old) << old.error().message;
    old->database->Run(
        "INSERT INTO jobs (cluster, slurm_job_id, restart_count, submit_time, run_number, user, "
        "name, run_dir, config, options, adaptive_train_version, start_time, state, launcher_host, "
        "launcher_boot_id, launcher_pid_namespace, launcher_pid, launcher_start_ticks) VALUES "
        "('c', 1, 0, 1, 0, 'u', '', '', '', '', '', 1, 'FAILED', '', '', '', 0, 0)");
    const auto failed = [&](const char* kind, const char* operation, const char* cause) {
      Statement insert(*old->database,
                       "INSERT INTO failures (job_id, time, host, kind, operation, peer, "
                       "cause) VALUES (1, 1, 'n1', ?1, ?2, '', ?3)");
      insert.Bind(kind, operation, cause).Run();
    };
    failed("silent", "", "no heartbeat for 6 s");
    failed("killed", "", "its process ended: killed by signal 9 (Killed)");
    failed("killed", "", "its process ended: killed by signal 11 (Segmentation fault)");
    failed("killed", "", "its connection closed");
    failed("reported", "writing a checkpoint", "a/b: No space left on device");
    failed("reported", "resume", "another model");
    failed("lost", "wire-up", "3 launches failed");
    failed("lost", "all-reduce", "reset");
    failed("what", "", "");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  const auto failures = store->FailuresOf(1);
  ASSERT_TRUE(failures) << failures.error().message;
  std::vector<FailureKind> kinds;
  for (const FailureRecord& failure : *failures) kinds.push_back(failure.kind);
  using K = FailureKind;
  EXPECT_EQ(kinds,
            (std::vector<K>{K::kNodeSilent, K::kKilled, K::kCrashed, K::kUnknown, K::kDiskFull,
                            K::kConfiguration, K::kLaunch, K::kLinkLost, K::kUnknown}));
  EXPECT_EQ(failures->at(0).blamed, Blamed::kNode);
  for (std::size_t i = 1; i < failures->size(); ++i)
    EXPECT_EQ(failures->at(i).blamed, Blamed::kNobody) << i;
}

TEST_F(MigrationTest, FailuresOfOlderProgramsCountInTheirJobsCluster) {
  const auto& steps = SchemaMigrations();
  {
    const auto old = OpenWith({steps.begin(), steps.begin() + 11});
    ASSERT_TRUE(old) << old.error().message;
    for (const char* cluster : {"c", "d"})
      old->database->Run(
          "INSERT INTO jobs (cluster, slurm_job_id, restart_count, submit_time, run_number, user, "
          "name, run_dir, config, options, adaptive_train_version, start_time, state, "
          "launcher_host, launcher_boot_id, launcher_pid_namespace, launcher_pid, "
          "launcher_start_ticks) VALUES ('" +
          std::string(cluster) +
          "', 1, 0, 1, 0, 'u', '', '', '', '', '', 1, 'FAILED', '', '', '', 0, 0)");
    old->database->Run(
        "INSERT INTO failures (job_id, time, host, kind, operation, peer, cause, blamed)"
        " VALUES (1, 1000, 'n1', 'node_silent', '', '', '', 'node')");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  for (const auto& [cluster, nodes] : {std::pair("c", 1u), std::pair("d", 0u)}) {
    const auto profile = store->ProfileOf({cluster, {"n1"}, {}, "", 2000});
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->nodes.size(), nodes) << cluster;
  }
}

TEST_F(MigrationTest, FailuresOfOlderProgramsStayWithTheirJobsAndUntilThoseGo) {
  const auto& steps = SchemaMigrations();
  {
    const auto old = OpenWith({steps.begin(), steps.begin() + 16});
    ASSERT_TRUE(old) << old.error().message;
    old->database->Run(
        "INSERT INTO jobs (cluster, slurm_job_id, restart_count, submit_time, run_number, user, "
        "name, run_dir, config, options, adaptive_train_version, start_time, state, "
        "launcher_host, launcher_boot_id, launcher_pid_namespace, launcher_pid, "
        "launcher_start_ticks) VALUES "
        "('c', 1, 0, 1, 0, 'u', '', '', '', '', '', 1, 'FAILED', '', '', '', 0, 0);"
        "INSERT INTO presence (cluster, node, owner, seen_at) VALUES ('c', 'n1', 7, 1000);"
        "PRAGMA foreign_keys = OFF");
    for (const int job : {1, 1, 9})  // of job 9 somebody has removed the row by hand
      old->database->Run(
          "INSERT INTO failures (job_id, time, host, kind, operation, peer, cause, blamed, cluster,"
          " owner) VALUES (" +
          std::to_string(job) +
          ", 1000, 'n1', 'node_silent', 'all', 'rank 1', 'x', 'node', 'c', 7)");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->FailuresOf(1)->size(), 2u);
  Database database(PathText());
  EXPECT_EQ(database.Number("SELECT count(*) FROM failures"), 2);
  EXPECT_EQ(database.Number("SELECT until FROM presence"), 1000 + 43200);
  // By hand, as from SQLite's shell: what is private goes with the job.
  database.Run(
      "PRAGMA foreign_keys = OFF;"
      "UPDATE failures SET host = printf('%.100c', 'h') WHERE id = 1; DELETE FROM jobs");
  EXPECT_EQ(database.Text("SELECT group_concat(host || operation || peer || cause) FROM failures"
                          " WHERE job_id IS NULL AND rank IS NULL"),
            "n1");
}

TEST_F(MigrationTest, LayersOfOlderProgramsAreTheFilesOwn) {
  const auto& steps = SchemaMigrations();
  {
    const auto old = OpenWith({steps.begin(), steps.begin() + 8});
    ASSERT_TRUE(old) << old.error().message;
    old->database->Run(
        "INSERT INTO layer_profiles (device_kind, model, layer, micro_batch, forward_s, "
        "backward_s, weight_gradients_s, update_s, gradient_variance, count, spread, measured_at) "
        "VALUES ('cpu', 'model', 'block', 2, 0.1, 0.2, 0.05, 0.01, 1e-3, 3, 0.02, 1.9e9)");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  const auto profile = store->ProfileOf({"alpha", {}, {"cpu"}, "model", 1.9e9});
  ASSERT_TRUE(profile) << profile.error().message;
  const LayerMeasurement kept = {"cpu", "model", "block", 2,    0.1,
                                 0.2,   0.05,    0.01,    1e-3, {3, 0.02, 1.9e9}};
  EXPECT_EQ(profile->layers, std::vector<LayerMeasurement>{kept});
}

TEST_F(MigrationTest, LinksAndDevicesOfOlderProgramsAreTheFilesOwn) {
  const auto& steps = SchemaMigrations();
  {
    const auto old = OpenWith({steps.begin(), steps.begin() + 9});
    ASSERT_TRUE(old) << old.error().message;
    old->database->Run(
        "INSERT INTO link_profiles (cluster, from_node, to_node, latency_s, bytes_per_second,"
        " count, spread, measured_at) VALUES ('alpha', 'n1', 'n2', 1e-4, 2e9, 3, 0.02, 1.9e9);"
        "INSERT INTO device_profiles (cluster, device_kind, node, product_flops, bytes_per_second,"
        " transfer_s_per_byte, count, spread, measured_at)"
        " VALUES ('alpha', 'cpu', 'n1', 4e11, 5e9, 6e-10, 7, 0.08, 1.8e9)");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  const auto profile = store->ProfileOf({"alpha", {"n1", "n2"}, {"cpu"}, "", 1.9e9});
  ASSERT_TRUE(profile) << profile.error().message;
  const LinkMeasurement link{"n1", "n2", 1e-4, 2e9, {3, 0.02, 1.9e9}};
  const DeviceMeasurement device{"n1", "cpu", 4e11, 5e9, {7, 0.08, 1.8e9}, 6e-10};
  EXPECT_EQ(profile->links, std::vector<LinkMeasurement>{link});
  EXPECT_EQ(profile->devices, std::vector<DeviceMeasurement>{device});
}

TEST_F(MigrationTest, TakesAnEmptyFile) {
  std::ofstream(Location().path).close();
  EXPECT_EQ(Refusal(Location()), "opened");
}

TEST_F(MigrationTest, TakesAnOlderFileOnAndKeepsItsRows) {
  ASSERT_TRUE(OpenWith({kFirst}));
  const auto opened = OpenWith({kFirst, kSecond, kThird});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(UserVersion(*opened->database), 3);
  EXPECT_EQ(opened->database->Number("SELECT c FROM u"), 8);
}

TEST_F(MigrationTest, AFailingStepLeavesNoTraceAndCanBeDoneLater) {
  ASSERT_TRUE(OpenWith({kFirst}));
  const auto broken = OpenWith({kFirst, kBroken, kThird});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().exit_code, ExitCode::kStore);
  EXPECT_NE(broken.error().message.find("bringing its schema up to date failed"),
            std::string::npos);
  {
    Database database(PathText());
    EXPECT_EQ(UserVersion(database), 1);
    EXPECT_EQ(database.Number("SELECT count(*) FROM pragma_table_info('t')"), 1);
  }
  const auto mended = OpenWith({kFirst, kSecond, kThird});
  ASSERT_TRUE(mended) << mended.error().message;
  EXPECT_EQ(UserVersion(*mended->database), 3);
}

TEST_F(MigrationTest, ANewerFileIsRefusedAndStaysAsItIs) {
  ASSERT_TRUE(FileStore::Open(Location()));
  {
    Database database(PathText());
    database.Run("PRAGMA user_version = 99");
  }
  const std::string before = BytesOf(Location().path);
  const std::string refusal = Refusal(Location());
  EXPECT_EQ(refusal,
            "profile store " + PathText() +
                ": its schema has version 99, and this adaptive-train knows versions up to " +
                std::to_string(SchemaMigrations().back().user_version) +
                ": use a newer adaptive-train, or give --store file:PATH another path");
  EXPECT_EQ(BytesOf(Location().path), before);
}

}  // namespace
}  // namespace adaptive_train::migration_test
