// Records that a store could not take go into a ledger and from there, once, into the next store
// that opens.
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <regex>

#include "db/database.h"
#include "db/known_store.h"
#include "db/ledger_file.h"
#include "db/ledger_json.h"
#include "db/ledger_list.h"
#include "db/open_database.h"
#include "tests/unit/db/fuse_mount.h"
#include "tests/unit/db/store_fixture.h"
#include "tests/unit/odd_documents.h"

namespace adaptive_train::ledger_test {
namespace {

class LedgerTest : public StoreTest {
 protected:
  LedgerTest() {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    std::filesystem::create_directories(Ledger().parent_path());
  }
  ~LedgerTest() override { unsetenv("XDG_STATE_HOME"); }

  std::filesystem::path Ledger() const { return folder_ / "runs/1/ledger.jsonl"; }

  /// A job whose launcher is certainly gone.
  static JobRecord Job() {
    JobRecord job = SampleJob();
    job.uid = NewRunUid();
    job.launcher = ThisProcess();
    job.launcher->start_ticks += 1;
    return job;
  }
  static MeasuredRecord Link() {
    MeasuredRecord measured{"alpha", {}};
    measured.profile.links = {{"n1", "n2", 1e-5, 1e9, {1, 0.01, 1000}}};
    return measured;
  }
  /// Writes all kinds of records of a run, and lists the ledger.
  void WriteRun(const JobRecord& job) {
    LedgerFile file(job);
    ASSERT_TRUE(file.Append({1, std::vector<NodeRecord>{{"n1", "user", "cpu", 2, 1 << 30, "{}"}}}));
    EXPECT_FALSE(file.Written());
    ASSERT_TRUE(file.Open(Ledger()));
    ASSERT_TRUE(file.Append({2, PlanRecord{"{}", 2, 0.5, "even"}}));
    ASSERT_TRUE(file.Append({3, LaunchRecord{1, 1011, LaunchOutcome::kOk, ""}}));
    ASSERT_TRUE(file.Append({4, FailureRecord{1030, 12, 1, "n1", FailureKind::kKilled, "all_reduce",
                                              "rank 0", "SIG\nKILL"}}));
    ASSERT_TRUE(file.Append({5, Link()}));
    SummaryRecord summary;
    summary.steps = 12;
    summary.final_loss = 3.5;
    ASSERT_TRUE(file.Append({6, summary}));
    ASSERT_TRUE(file.Append({7, JobEnd{JobState::kFailed, 5, 1040, "rank 1 was killed"}}));
    ASSERT_TRUE(file.Sync());
    ASSERT_TRUE(ListLedger(job.uid, Ledger()));
  }
  StoreChoice Named() const { return {"file:" + Location().path.string(), "--store", true}; }
  Result<KnownStore> Open() const { return OpenKnownStore(Named()); }
};

TEST_F(LedgerTest, AllThatARunRecordsComesIntoTheNextStoreOnce) {
  const JobRecord job = Job();
  WriteRun(job);
  for (int i = 0; i < 2; ++i) {
    auto known = OpenKnownStore(Named(), {Ledger()});
    ASSERT_TRUE(known) << known.error().message;
    EXPECT_EQ(std::ranges::count_if(known->notes,
                                    [](const std::string& note) {
                                      return note.find("7 entries taken in") != note.npos;
                                    }),
              i == 0 ? 1 : 0);
    const auto rows = known->store->FindJobs(EveryJob());
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->size(), 1u);
    const JobRow& row = rows->front();
    EXPECT_EQ(row.job.name, job.name);
    EXPECT_EQ(row.job.launcher, job.launcher);
    EXPECT_EQ(row.job.uid, job.uid);
    EXPECT_EQ(row.state, JobState::kFailed);
    EXPECT_EQ(row.exit_code, 5);
    EXPECT_EQ(row.reason, "rank 1 was killed");
    EXPECT_EQ(row.nodes, std::vector<std::string>{"n1"});
    EXPECT_EQ(row.ranks, 2);
    EXPECT_EQ(row.launches, 1);
    EXPECT_EQ(row.summary.value().steps, 12);
    EXPECT_EQ(row.summary->final_loss, 3.5);
    const auto failures = known->store->FailuresOf(row.id);
    ASSERT_EQ(failures.value().size(), 1u);
    EXPECT_EQ(failures->front().cause, "SIG\nKILL");
    const auto profile = known->store->MeasurementsOf("alpha");
    ASSERT_EQ(profile.value().links.size(), 1u);
    EXPECT_EQ(profile->links.front().evidence.count, 1);
  }
  EXPECT_TRUE(ListedLedgers().empty());
}

TEST_F(LedgerTest, WhatFollowsTheTroubleJoinsTheRowThatWasBegun) {
  const JobRecord job = Job();
  {
    auto store = FileStore::Open(Location());
    ASSERT_TRUE(store);
    ASSERT_TRUE(store->BeginJob(job));
  }
  LedgerFile file(job);
  ASSERT_TRUE(file.Open(Ledger()));
  ASSERT_TRUE(file.Append({1, JobEnd{JobState::kCompleted, 0, 1040, ""}}));
  ASSERT_TRUE(ListLedger(job.uid, Ledger()));
  auto known = Open();
  ASSERT_TRUE(known);
  const auto rows = known->store->FindJobs(EveryJob());
  ASSERT_EQ(rows.value().size(), 1u);
  EXPECT_EQ(rows->front().state, JobState::kCompleted);
}

TEST_F(LedgerTest, WhatASlowStoreHasWrittenAllTheSameIsThereOnce) {
  const JobRecord job = Job();
  auto slow = FileStore::Open(Location());
  ASSERT_TRUE(slow);
  const std::int64_t id = slow->BeginJob(job).value();
  ASSERT_TRUE(slow->Record(id, {1, Link()}));
  LedgerFile file(job);
  ASSERT_TRUE(file.Open(Ledger()));
  ASSERT_TRUE(file.Append({2, Link()}));
  ASSERT_TRUE(file.Append({3, PlanRecord{"{}", 2, 0.5, "even"}}));
  ASSERT_TRUE(ListLedger(job.uid, Ledger()));
  ASSERT_TRUE(slow->Record(id, {2, Link()}));  // before the ledger is taken in
  auto known = Open();
  ASSERT_TRUE(known);
  EXPECT_EQ(known->store->MeasurementsOf("alpha").value().links.front().evidence.count, 2);
  ASSERT_TRUE(slow->Record(id, {3, PlanRecord{"{}", 9, 0.5, "twice"}}));  // after it
  EXPECT_EQ(known->store->FindJobs(EveryJob()).value().front().ranks, 2);
}

TEST_F(LedgerTest, ARunThatGoesOnIsTakenInBitByBitAndStaysListed) {
  JobRecord job = Job();
  job.launcher = ThisProcess();
  LedgerFile file(job);
  ASSERT_TRUE(file.Open(Ledger()));
  ASSERT_TRUE(file.Append({1, Link()}));
  ASSERT_TRUE(ListLedger(job.uid, Ledger()));
  ASSERT_TRUE(Open());
  EXPECT_EQ(ListedLedgers().size(), 1u);
  ASSERT_TRUE(file.Append({2, Link()}));
  auto known = Open();
  ASSERT_TRUE(known);
  EXPECT_EQ(known->store->MeasurementsOf("alpha").value().links.front().evidence.count, 2);
  ASSERT_TRUE(file.Append({3, JobEnd{JobState::kCompleted, 0, 1040, ""}}));
  known = Open();
  EXPECT_EQ(known.value().store->FindJobs(EveryJob()).value().front().state, JobState::kCompleted);
  EXPECT_TRUE(ListedLedgers().empty());
}

TEST_F(LedgerTest, ATornLastLineIsLeftOutAndToldAndTheNextRunBeginsALine) {
  const JobRecord first = Job(), second = Job();
  WriteRun(first);
  std::filesystem::resize_file(Ledger(), std::filesystem::file_size(Ledger()) - 5);
  auto torn = ReadLedger(Ledger());
  ASSERT_TRUE(torn);
  ASSERT_EQ(torn->runs.size(), 1u);
  EXPECT_EQ(torn->runs.front().entries.size(), 6u);
  ASSERT_EQ(torn->notes.size(), 1u);
  EXPECT_NE(torn->notes.front().find("line 8 is left out: it is torn"), std::string::npos);
  WriteRun(second);
  auto both = ReadLedger(Ledger());
  ASSERT_EQ(both.value().runs.size(), 2u);
  EXPECT_TRUE(both->runs.back().Ended());
  EXPECT_EQ(both->notes.size(), 1u);
}

TEST_F(LedgerTest, GarbageAndNewerLinesAreToldOneByOne) {
  const JobRecord job = Job();
  std::ofstream(Ledger()) << "garbage\n[1]\n{\"format_version\":99,\"run\":\"x\"}\n"
                          << LedgerLine(Job().uid, {1, JobEnd{}}) << "\n"
                          << LedgerLine(job) << "\n";
  const auto read = ReadLedger(Ledger());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->runs.size(), 1u);
  EXPECT_EQ(read->notes.size(), 4u);
}

TEST_F(LedgerTest, WithTheDefaultStoreOnANetworkFileSystemTheLedgersAreWhatIsKnown) {
  const std::string outcome = InChild([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "cannot make a mount namespace";
    WriteRun(Job());
    const auto store = ParseStoreLocation({}).value().path;
    std::filesystem::create_directory(store);  // not a file: refused like a network file system
    auto known = OpenKnownStore({});
    if (!known) return known.error().message;
    if (!known->trouble) return "no trouble";
    if (known->store->FindJobs(EveryJob()).value().size() != 1) return "the ledger is not known";
    if (ListedLedgers().size() != 1) return "the ledger is not listed any more";
    FuseMount sshfs(folder_, "fuse.sshfs");
    if (!sshfs.Mounted()) return "cannot mount a FUSE file system";
    known = OpenKnownStore({});
    if (!known) return known.error().message;
    if (known->trouble->message.find("network file system (fuse.sshfs)") == std::string::npos)
      return known->trouble->message;
    const auto named = OpenKnownStore({"file:" + store.string(), "--store", true});
    return named ? "opened" : named.error().exit_code == ExitCode::kStore ? "" : "wrong code";
  });
  EXPECT_EQ(outcome, "");
}

TEST_F(LedgerTest, AStoreThatWillNotStayIsToldWhenItIsMade) {
  const std::string outcome = InChild([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "cannot make a mount namespace";
    if (mount("none", folder_.c_str(), "tmpfs", 0, "size=8m") != 0) return "cannot mount a tmpfs";
    for (const std::size_t expected : {1u, 0u}) {
      auto known = Open();
      if (!known) return known.error().message;
      if (known->notes.size() != expected) return std::to_string(known->notes.size()) + " notes";
      if (expected > 0 && known->notes.front().find("lies on tmpfs") == std::string::npos)
        return known->notes.front();
    }
    return "";
  });
  EXPECT_EQ(outcome, "");
}

TEST_F(LedgerTest, ALedgerRemovedWithItsRunFolderIsToldOnce) {
  ASSERT_TRUE(Open());
  WriteRun(Job());
  std::filesystem::remove_all(Ledger().parent_path());
  auto known = Open();
  ASSERT_EQ(known.value().notes.size(), 1u);
  EXPECT_NE(known->notes.front().find("removed before a store took it in"), std::string::npos);
  EXPECT_TRUE(Open().value().notes.empty());
}

TEST_F(LedgerTest, ToShowWhatIsStoredNoFileIsMade) {
  EXPECT_TRUE(ReadKnownStore({}).value().store->FindJobs(EveryJob()).value().empty());
  EXPECT_TRUE(ReadKnownStore(Named()));
  EXPECT_FALSE(std::filesystem::exists(Location().path));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "state"));
  std::ofstream(Location().path) << "dear diary\n" << std::string(5000, 'z');
  EXPECT_FALSE(ReadKnownStore(Named()));
}

TEST_F(LedgerTest, AFileOfTheSecondSchemaIsTakenOnWithItsJobs) {
  const auto& all = SchemaMigrations();
  {
    const auto old = OpenDatabase(Location(), std::chrono::seconds(5), true, {all[0], all[1]});
    ASSERT_TRUE(old);
    old->database->Run(
        "INSERT INTO jobs VALUES (1, 'alpha', 7, 0, 1, 0, 'ann', 'job', '/r', '', '', '0.1.0', 1, "
        "2, 'FAILED', 5, 'h', '', '', 1, 1), (2, 'alpha', 8, 0, 1, 0, 'ann', 'job', '/r', '', '', "
        "'0.1.0', 1, 2, 'FAILED', 5, 'h', '', '', 1, 1)");
  }
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  const auto rows = store->FindJobs(EveryJob());
  ASSERT_EQ(rows.value().size(), 2u);
  EXPECT_EQ(rows->front().reason, "");
  EXPECT_FALSE(rows->front().job.array_job_id);
}

TEST_F(LedgerTest, TasksOfAnArrayAreFoundByArrayByTaskAndByJob) {
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store);
  for (int task = 1; task <= 3; ++task) {
    JobRecord job = SampleJob();
    job.slurm_job_id = 11 + task;
    job.array_job_id = 12;
    job.array_task_id = task;
    ASSERT_TRUE(store->BeginJob(job));
  }
  const auto found = [&](JobKey key) {
    JobQuery query = EveryJob();
    query.ids = {key};
    std::string ids;
    const auto rows = store->FindJobs(query);
    for (const JobRow& row : rows.value()) ids += ShownJobId(row) + " ";
    return ids;
  };
  EXPECT_EQ(found({false, 12}), "12_1 12_2 12_3 ");
  EXPECT_EQ(found({false, 12, 3}), "12_3 ");
  EXPECT_EQ(found({false, 14}), "12_3 ");
  EXPECT_EQ(found({false, 12, 4}), "");
  EXPECT_EQ(found({true, 12}), "");
}

TEST(LedgerLine, OddLinesAreRefusedInOneLine) {
  JobRecord job = SampleJob();
  job.uid = NewRunUid();
  ExpectOddDocumentsRefused(LedgerLine(job), ReadLedgerLine);
  MeasuredRecord measured{"alpha", {}};
  measured.profile.links = {{"n1", "n2", 1e-5, 1e9, {1, 0.01, 1000}}};
  SummaryRecord summary;
  summary.final_loss = 3.5;
  summary.micro_batches = 4;
  summary.plan_step_s = 0.5;
  const LedgerEntry entries[] = {
      std::vector<NodeRecord>{{"n1", "user", "cpu", 2, 1 << 30, "{}"}},
      PlanRecord{"{}", 2, 0.5, "even"},
      LaunchRecord{1, 1011, LaunchOutcome::kOk, ""},
      FailureRecord{1030, 12, 1, "n1", FailureKind::kKilled, "all_reduce", "rank 0", "SIGKILL"},
      measured,
      summary,
      JobEnd{JobState::kFailed, 5, 1040, "rank 1 was killed"}};
  std::int64_t number = 0;
  for (const LedgerEntry& entry : entries)
    ExpectOddDocumentsRefused(LedgerLine(job.uid, {++number, entry}), ReadLedgerLine);
}

TEST(LedgerLine, AMemberOfAnotherTypeIsNamed) {
  const std::string line = LedgerLine(NewRunUid(), {1, PlanRecord{"{}", 2, 0.5, "even"}});
  const auto read = ReadLedgerLine(std::regex_replace(line, std::regex("\"even\""), "7"));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "ledger: plan.why: not a string");
}

}  // namespace
}  // namespace adaptive_train::ledger_test
