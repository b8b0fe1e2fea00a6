// What is stored comes back: every record, every condition of a query, every wrong id.
#include "db/file_store.h"
#include "db/database.h"

#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::file_store_test {
namespace {

class FileStoreTest : public StoreTest {
 protected:
  FileStoreTest() {
    auto opened = FileStore::Open(Location());
    if (!opened) throw std::runtime_error(opened.error().message);
    store_.emplace(std::move(*opened));
  }

  std::int64_t Begin(const JobRecord& job) {
    const auto id = store_->BeginJob(job);
    EXPECT_TRUE(id) << id.error().message;
    return id.value_or(-1);
  }
  std::vector<JobRow> Find(const JobQuery& query) {
    auto rows = store_->FindJobs(query);
    EXPECT_TRUE(rows) << rows.error().message;
    return rows.value_or(std::vector<JobRow>{});
  }
  std::vector<std::int64_t> FindIds(const JobQuery& query) {
    std::vector<std::int64_t> ids;
    for (const JobRow& row : Find(query)) ids.push_back(row.id);
    return ids;
  }

  std::optional<FileStore> store_;
};

using Ids = std::vector<std::int64_t>;

mode_t ModeOf(const std::filesystem::path& path) {
  struct stat entry {};
  EXPECT_EQ(stat(path.c_str(), &entry), 0) << path;
  return entry.st_mode & 0777;
}

TEST_F(FileStoreTest, MakesPrivateFoldersAndAPrivateFileInWalMode) {
  const StoreLocation deep{folder_ / "a/b/profiles.db"};
  auto store = FileStore::Open(deep);
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE(store->BeginJob(SampleJob()));
  EXPECT_EQ(ModeOf(folder_ / "a"), 0700u);
  EXPECT_EQ(ModeOf(folder_ / "a/b"), 0700u);
  EXPECT_EQ(ModeOf(deep.path), 0600u);
  EXPECT_TRUE(std::filesystem::exists(deep.path.string() + "-wal"));
}

TEST_F(FileStoreTest, AJobComesBackAsItWasStored) {
  JobRecord job = SampleJob("caf\xC3\xA9 'x'\n");
  job.slurm_job_id = 77;
  job.restart_count = 2;
  job.launcher = LauncherProcess{"n1", "boot", "pid:[9]", 4242, 17};
  const std::int64_t id = Begin(job);
  const auto rows = Find(EveryJob());
  ASSERT_EQ(rows.size(), 1u);
  const JobRow& row = rows[0];
  EXPECT_EQ(row.id, id);
  EXPECT_EQ(row.run_number, 0);
  EXPECT_EQ(row.job.cluster, job.cluster);
  EXPECT_EQ(row.job.slurm_job_id, 77);
  EXPECT_EQ(row.job.restart_count, 2);
  EXPECT_EQ(row.job.submit_time, job.submit_time);
  EXPECT_EQ(row.job.user, job.user);
  EXPECT_EQ(row.job.name, job.name);
  EXPECT_EQ(row.job.run_dir, job.run_dir);
  EXPECT_EQ(row.job.config, job.config);
  EXPECT_EQ(row.job.options, job.options);
  EXPECT_EQ(row.job.adaptive_train_version, job.adaptive_train_version);
  EXPECT_EQ(row.job.start_time, job.start_time);
  EXPECT_EQ(row.job.launcher, job.launcher);
  EXPECT_EQ(row.state, JobState::kRunning);
  EXPECT_FALSE(row.end_time);
  EXPECT_FALSE(row.exit_code);
  EXPECT_FALSE(row.summary);
  EXPECT_EQ(row.ranks, 0);
  EXPECT_EQ(ShownJobId(row), "77");
}

TEST_F(FileStoreTest, TheCallerIsTheLauncherUnlessNamed) {
  Begin(SampleJob());
  EXPECT_EQ(Find(EveryJob()).at(0).job.launcher, ThisProcess());
}

TEST_F(FileStoreTest, LocalRunsAreShownByTheStoresId) {
  const std::int64_t id = Begin(SampleJob());
  EXPECT_EQ(ShownJobId(Find(EveryJob()).at(0)), "L" + std::to_string(id));
}

TEST_F(FileStoreTest, RunsOfTheLauncherInOneSlurmJobAreCounted) {
  JobRecord job = SampleJob();
  job.slurm_job_id = 5;
  Begin(job);
  Begin(job);
  job.restart_count = 1;
  Begin(job);
  const auto rows = Find(EveryJob());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].run_number, 0);
  EXPECT_EQ(rows[1].run_number, 1);
  EXPECT_EQ(rows[2].run_number, 0);
}

TEST_F(FileStoreTest, AllPartsOfAJobComeBack) {
  const std::int64_t id = Begin(SampleJob());
  ASSERT_TRUE(store_->Record(id, {1, std::vector<NodeRecord>{{"old", "user", "cpu", 1, 1, "{}"}}}));
  ASSERT_TRUE(store_->Record(
      id, {2, std::vector<NodeRecord>{{"n2", "prolog", "EPYC", 8, 1 << 30, "{\"a\":1}"},
                                      {"n1", "user", "EPYC", 4, 5, "{}"}}}));
  EXPECT_TRUE(store_->Record(id, {3, PlanRecord{"{}", 4, 0.25, "even nodes"}}));
  EXPECT_TRUE(store_->Record(id, {4, PlanRecord{"{}", 3, std::nullopt, "n3 died"}}));
  ASSERT_TRUE(store_->Record(id, {5, LaunchRecord{2, 1021, LaunchOutcome::kOk, ""}}));
  ASSERT_TRUE(
      store_->Record(id, {6, LaunchRecord{1, 1011, LaunchOutcome::kRetried, "the fence hung"}}));
  ASSERT_TRUE(store_->Record(id, {7, FailureRecord{1030.5, 12, 3, "n1", FailureKind::kKilled,
                                                   "all_reduce", "rank 2", "SIGKILL"}}));
  ASSERT_TRUE(
      store_->Record(id, {8, FailureRecord{1029, std::nullopt, std::nullopt, "n2",
                                           FailureKind::kNodeSilent, "", "", "no heartbeat"}}));
  ASSERT_TRUE(store_->Record(
      id, {9, FailureRecord{1031, 15, 1, "n2", FailureKind::kSlow, "computing", "", "1.8 times"}}));
  SummaryRecord summary{20, 40960, 3.5, 3.75, 1e4, 0.5, 0.97, 0.41, 1, 2, 3, 4, 8, 0.25, 0.375};
  ASSERT_TRUE(store_->Record(id, {10, SummaryRecord{}}));
  ASSERT_TRUE(store_->Record(id, {11, summary}));
  ASSERT_TRUE(store_->Record(id, {12, JobEnd{JobState::kFailed, 5, 1040.25, "rank 1 was killed"}}));

  const JobRow row = Find(EveryJob()).at(0);
  EXPECT_EQ(row.nodes, (std::vector<std::string>{"n2", "n1"}));
  EXPECT_EQ(row.ranks, 3);
  EXPECT_EQ(row.launches, 2);
  EXPECT_EQ(row.launch_retries, 1);
  EXPECT_EQ(row.failures, 2);
  EXPECT_EQ(row.state, JobState::kFailed);
  EXPECT_EQ(row.exit_code, 5);
  EXPECT_EQ(row.end_time, 1040.25);
  EXPECT_EQ(row.reason, "rank 1 was killed");
  ASSERT_TRUE(row.summary);
  EXPECT_EQ(row.summary->steps, 20);
  EXPECT_EQ(row.summary->tokens, 40960);
  EXPECT_EQ(row.summary->final_loss, 3.5);
  EXPECT_EQ(row.summary->validation_loss, 3.75);
  EXPECT_EQ(row.summary->tokens_per_s, 1e4);
  EXPECT_EQ(row.summary->mean_step_s, 0.5);
  EXPECT_EQ(row.summary->robustness, 0.97);
  EXPECT_EQ(row.summary->mfu, 0.41);
  EXPECT_EQ(row.summary->grad_bytes, 1);
  EXPECT_EQ(row.summary->param_bytes, 2);
  EXPECT_EQ(row.summary->activation_bytes, 3);
  EXPECT_EQ(row.summary->peak_memory_bytes, 4);
  EXPECT_EQ(row.summary->micro_batches, 8);
  EXPECT_EQ(row.summary->predicted_step_s, 0.25);
  EXPECT_EQ(row.summary->plan_step_s, 0.375);

  const auto launches = store_->LaunchesOf(id);
  ASSERT_TRUE(launches);
  ASSERT_EQ(launches->size(), 2u);
  EXPECT_EQ((*launches)[0].attempt, 1);
  EXPECT_EQ((*launches)[0].outcome, LaunchOutcome::kRetried);
  EXPECT_EQ((*launches)[0].reason, "the fence hung");
  EXPECT_EQ((*launches)[1].started, 1021);

  const auto failures = store_->FailuresOf(id);
  ASSERT_TRUE(failures);
  ASSERT_EQ(failures->size(), 3u);
  EXPECT_EQ((*failures)[2].kind, FailureKind::kSlow);
  EXPECT_EQ((*failures)[0].kind, FailureKind::kNodeSilent);
  EXPECT_FALSE((*failures)[0].rank);
  EXPECT_FALSE((*failures)[0].step);
  EXPECT_EQ((*failures)[1].step, 12);
  EXPECT_EQ((*failures)[1].rank, 3);
  EXPECT_EQ((*failures)[1].host, "n1");
  EXPECT_EQ((*failures)[1].operation, "all_reduce");
  EXPECT_EQ((*failures)[1].peer, "rank 2");
  EXPECT_EQ((*failures)[1].cause, "SIGKILL");
  EXPECT_EQ((*failures)[1].time, 1030.5);
}

TEST_F(FileStoreTest, ANodesSnapshotIsStoredOnce) {
  const auto snapshot = [](int minute, int cores) {
    return R"({"name":"n1","taken_at":"2026-11-29T03:)" + std::to_string(minute) +
           R"(:00Z","probe_seconds":0.0)" + std::to_string(minute) + R"(,"cores":)" +
           std::to_string(cores) + R"(,"processors":{"model":"cpu","allowed_cores":)" +
           std::to_string(minute) + R"(},"memory":{"total_bytes":9,"available_bytes":)" +
           std::to_string(minute) + R"(,"limits":[{"what":"/job_)" + std::to_string(minute) +
           R"(/step_0"}]}})";
  };
  for (int job = 0; job < 4; ++job) {
    const std::int64_t id = Begin(SampleJob());
    ASSERT_TRUE(store_->Record(
        id, {1, std::vector<NodeRecord>{{"n1", "user", "cpu", 2, 1, snapshot(10 + job, 2)}}}));
  }
  const std::int64_t id = Begin(SampleJob());
  ASSERT_TRUE(store_->Record(
      id, {1, std::vector<NodeRecord>{{"n1", "user", "cpu", 4, 1, snapshot(20, 4)},
                                      {"n2", "user", "cpu", 4, 1, "no JSON"},
                                      {"n3", "user", "cpu", 4, 1, std::string(500000, '[')}}}));
  Database database(Location().path.string());
  EXPECT_EQ(database.Number("SELECT count(*) FROM snapshots"), 4);
  EXPECT_EQ(database.Text("SELECT text FROM nodes JOIN snapshots ON hash = snapshot_hash WHERE "
                          "job_id = 1"),
            R"({"cores":2,"memory":{"total_bytes":9},"name":"n1","processors":{"model":"cpu"}})");
}

TEST_F(FileStoreTest, ALossThatIsNoNumberComesBackAsNone) {
  const std::int64_t id = Begin(SampleJob());
  SummaryRecord summary;
  summary.final_loss = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(store_->Record(id, {1, summary}));
  EXPECT_FALSE(Find(EveryJob()).at(0).summary->final_loss);
}

TEST_F(FileStoreTest, AJobThatIsNotThereIsNamedAndNothingIsStored) {
  const auto expect_unknown = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().exit_code, ExitCode::kStore);
    EXPECT_NE(result.error().message.find("is not in the store"), std::string::npos)
        << result.error().message;
  };
  expect_unknown(store_->Record(9, {1, std::vector<NodeRecord>{{"n1", "user", "", 0, 0, ""}}}));
  expect_unknown(store_->Record(9, {2, PlanRecord{}}));
  expect_unknown(store_->Record(9, {3, LaunchRecord{}}));
  expect_unknown(store_->Record(9, {4, FailureRecord{}}));
  expect_unknown(store_->Record(9, {5, SummaryRecord{}}));
  expect_unknown(store_->Record(9, {6, JobEnd{JobState::kCompleted, 0, 1, ""}}));
  EXPECT_TRUE(store_->FailuresOf(9)->empty());
  EXPECT_TRUE(store_->LaunchesOf(9)->empty());
}

TEST_F(FileStoreTest, AWriteThatFailsHalfWayChangesNothing) {
  const std::int64_t id = Begin(SampleJob());
  ASSERT_TRUE(store_->Record(id, {1, std::vector<NodeRecord>{{"n1", "user", "", 0, 0, ""},
                                                             {"n2", "user", "", 0, 0, ""}}}));
  const auto twice = store_->Record(
      id, {2, std::vector<NodeRecord>{{"n3", "user", "", 0, 0, ""}, {"n3", "user", "", 0, 0, ""}}});
  EXPECT_FALSE(twice);
  EXPECT_EQ(Find(EveryJob()).at(0).nodes, (std::vector<std::string>{"n1", "n2"}));
}

TEST_F(FileStoreTest, AllRowsOfAJobGoWithIt) {
  const std::int64_t id = Begin(SampleJob());
  ASSERT_TRUE(store_->Record(id, {1, std::vector<NodeRecord>{{"n1", "user", "", 0, 0, ""}}}));
  ASSERT_TRUE(store_->Record(id, {2, PlanRecord{}}));
  ASSERT_TRUE(store_->Record(id, {3, LaunchRecord{}}));
  ASSERT_TRUE(store_->Record(id, {4, FailureRecord{}}));
  ASSERT_TRUE(store_->Record(id, {5, SummaryRecord{}}));
  Database database(Location().path.string());
  database.Run("PRAGMA foreign_keys = ON; DELETE FROM jobs;");
  for (const char* table : {"nodes", "plans", "launches", "failures", "summaries"}) {
    EXPECT_EQ(database.Number(std::string("SELECT count(*) FROM ") + table), 0) << table;
  }
}

TEST_F(FileStoreTest, FindsByUserIdStateAndTime) {
  JobRecord job = SampleJob();
  const auto begin = [&](const char* user, std::int64_t slurm_job_id, double start) {
    job.user = user;
    job.slurm_job_id = slurm_job_id;
    job.start_time = start;
    return Begin(job);
  };
  const std::int64_t a = begin("ann", 12, 300), b = begin("bob", 123, 100),
                     c = begin("ann", 0, 200);
  ASSERT_TRUE(store_->Record(b, {1, JobEnd{JobState::kCompleted, 0, 150, ""}}));
  ASSERT_TRUE(store_->Record(c, {2, JobEnd{JobState::kNodeFail, 5, 250, ""}}));

  EXPECT_EQ(FindIds(EveryJob()), (Ids{b, c, a}));
  EXPECT_EQ(FindIds(JobQuery{}), Ids{});
  JobQuery query;
  query.users = {"ann", "eve"};
  EXPECT_EQ(FindIds(query), (Ids{c, a}));
  query.users = {"an"};
  EXPECT_EQ(FindIds(query), Ids{});

  query = EveryJob();
  query.ids = {{false, 12}, {true, c}};
  EXPECT_EQ(FindIds(query), (Ids{c, a}));
  query.ids = {{true, a}, {false, 2}, {false, c}};  // a and c under names that are not theirs
  EXPECT_EQ(FindIds(query), Ids{});

  query = EveryJob();
  query.states = {JobState::kCompleted, JobState::kNodeFail};
  EXPECT_EQ(FindIds(query), (Ids{b, c}));

  query = EveryJob();
  query.start = 150;
  EXPECT_EQ(FindIds(query), (Ids{b, c, a}));
  query.start = 151;
  EXPECT_EQ(FindIds(query), (Ids{c, a}));
  query.end = 299;
  EXPECT_EQ(FindIds(query), (Ids{c}));
  query.end = 300;
  EXPECT_EQ(FindIds(query), (Ids{c, a}));

  query = EveryJob();
  query.newest = 2;
  EXPECT_EQ(FindIds(query), (Ids{c, a})) << "the last to begin, in their order";
  query.users = {"bob"}, query.all_users = false;
  EXPECT_EQ(FindIds(query), (Ids{b}));
}

TEST_F(FileStoreTest, AWordOfNobodysIsToldAndNotGuessed) {
  const std::int64_t id = Begin(SampleJob());
  ASSERT_TRUE(store_->Record(id, {1, LaunchRecord{1, 1, LaunchOutcome::kOk, ""}}));
  Database database(Location().path.string());
  database.Run("UPDATE jobs SET state = 'ODD'; UPDATE launches SET outcome = 'ODD';");
  const auto rows = store_->FindJobs(EveryJob());
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().exit_code, ExitCode::kStore);
  EXPECT_NE(rows.error().message.find("'ODD'"), std::string::npos);
  EXPECT_FALSE(store_->LaunchesOf(id));
}

TEST(JobStateNames, GoBothWays) {
  for (const JobState state : AllJobStates()) {
    EXPECT_EQ(JobStateFromString(ToString(state)), state);
    EXPECT_EQ(JobStateFromString(ShortName(state)), state);
  }
  EXPECT_EQ(JobStateFromString("node_fail"), JobState::kNodeFail);
  EXPECT_EQ(JobStateFromString("PENDING"), std::nullopt);
  EXPECT_EQ(JobStateFromString(""), std::nullopt);
}

}  // namespace
}  // namespace adaptive_train::file_store_test
