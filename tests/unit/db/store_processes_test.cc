// Several real processes on one store: locks held by others, openings at once, kills at any moment.
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "db/database.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::store_processes_test {
namespace {

using std::chrono::milliseconds;

/// A process that holds a lock on a database from its construction until Release.
class LockHolder {
 public:
  explicit LockHolder(const std::filesystem::path& path) {
    int ready[2], release[2];
    if (pipe(ready) != 0 || pipe(release) != 0) std::abort();
    child_ = fork();
    if (child_ == 0) {
      close(release[1]);
      Database database(path.string(), Database::Mode::kCreate, std::chrono::seconds(5));
      database.Run("BEGIN EXCLUSIVE");
      char byte = 'r';
      alarm(60);
      if (write(ready[1], &byte, 1) == 1 && read(release[0], &byte, 1) >= 0)
        database.Run("ROLLBACK");
      _exit(0);
    }
    close(ready[1]);
    close(release[0]);
    release_ = release[1];
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the lock was not taken";
    close(ready[0]);
  }
  ~LockHolder() { Release(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

  void Release() {
    if (release_ < 0) return;
    close(release_);
    release_ = -1;
    waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = -1;
  int release_ = -1;
};

class StoreProcesses : public StoreTest {
 protected:
  static StoreOptions Impatient() {
    StoreOptions options;
    options.patience = milliseconds(150);
    return options;
  }
};

TEST_F(StoreProcesses, ANewStoreLockedByAnotherIsRefusedAtTheDeadline) {
  LockHolder holder(Location().path);
  const std::string refusal = Refusal(Location(), Impatient());
  EXPECT_NE(refusal.find("another process has locked the store for longer than 0.15 s"),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("fuser " + Location().path.string()), std::string::npos) << refusal;
  holder.Release();
  EXPECT_EQ(Refusal(Location(), Impatient()), "opened");
}

TEST_F(StoreProcesses, AWriterElsewhereStopsWritesAtTheDeadlineAndNoReads) {
  ASSERT_EQ(Refusal(Location()), "opened");
  LockHolder holder(Location().path);
  auto store = FileStore::Open(Location(), Impatient());
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE(store->FindJobs(EveryJob()));
  const auto refused = store->BeginJob(SampleJob());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, ExitCode::kStore);
  EXPECT_NE(refused.error().message.find("another process has locked the store"),
            std::string::npos);
  holder.Release();
  EXPECT_TRUE(store->BeginJob(SampleJob()));
}

TEST_F(StoreProcesses, AWriterThatEndsInTimeIsWaitedFor) {
  ASSERT_EQ(Refusal(Location()), "opened");
  StoreOptions patient;
  patient.patience = std::chrono::seconds(60);
  auto store = FileStore::Open(Location(), patient);
  ASSERT_TRUE(store);
  LockHolder holder(Location().path);
  std::thread releaser([&] {
    std::this_thread::sleep_for(milliseconds(300));
    holder.Release();
  });
  EXPECT_TRUE(store->BeginJob(SampleJob()));
  releaser.join();
}

/// Stores `count` jobs with three nodes and a plan each. Returns the first error.
std::string StoreJobs(const StoreLocation& location, const std::string& name, int count) {
  StoreOptions patient;
  patient.patience = std::chrono::seconds(60);
  auto store = FileStore::Open(location, patient);
  if (!store) return store.error().message;
  for (int i = 0; i < count; ++i) {
    const auto id = store->BeginJob(SampleJob(name));
    if (!id) return id.error().message;
    const NodeRecord node{"", "user", "cpu", 1, 1, "{}"};
    std::vector<NodeRecord> nodes(3, node);
    for (std::size_t n = 0; n < nodes.size(); ++n) nodes[n].name = std::to_string(n);
    if (const auto saved = store->Record(*id, {1, nodes}); !saved) return saved.error().message;
    if (const auto plan = store->Record(*id, {2, PlanRecord{}}); !plan) return plan.error().message;
  }
  return "";
}

TEST_F(StoreProcesses, ManyOpenANewStoreAndWriteAtOnce) {
  constexpr int kProcesses = 4, kJobs = 10, kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    const StoreLocation location{folder_ / ("round" + std::to_string(round)) / "sub/profiles.db"};
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (int p = 0; p < kProcesses; ++p) {
      children.push_back(std::make_unique<ChildProcess>([&] {
        char byte = 0;
        if (read(gate[0], &byte, 1) != 1) return std::string("no start");
        return StoreJobs(location, std::to_string(p), kJobs);
      }));
    }
    ASSERT_EQ(write(gate[1], "gggg", kProcesses), kProcesses);
    for (const auto& child : children) EXPECT_EQ(child->Outcome(), "");
    close(gate[0]);
    close(gate[1]);
    auto store = FileStore::Open(location);
    ASSERT_TRUE(store) << store.error().message;
    std::map<std::string, int> jobs_of;
    const auto rows = store->FindJobs(EveryJob());
    ASSERT_TRUE(rows) << rows.error().message;
    for (const JobRow& row : *rows) {
      ++jobs_of[row.job.name];
      EXPECT_EQ(row.nodes.size(), 3u);
    }
    EXPECT_EQ(jobs_of.size(), static_cast<std::size_t>(kProcesses));
    for (const auto& [name, count] : jobs_of) EXPECT_EQ(count, kJobs) << name;
  }
}

/// Stores jobs endlessly, reporting each number once its call has returned.
[[noreturn]] void StoreUntilKilled(const StoreLocation& location, int told) {
  alarm(60);
  const auto left = [](const char* what, const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", what, why.c_str());
    _exit(1);
  };
  auto store = FileStore::Open(location);
  if (!store) left("opening", store.error().message);
  JobRecord job = SampleJob();
  job.config = std::string(20000, 'c');  // several pages: a kill can come between any two of them
  while (true) {
    const auto id = store->BeginJob(job);
    if (!id) left("beginning a job", id.error().message);
    if (write(told, &*id, sizeof *id) != sizeof *id) left("telling", std::strerror(errno));
    const std::vector<NodeRecord> nodes = {{"a", "user", "", 1, 1, std::string(9000, 'a')},
                                           {"b", "user", "", 1, 1, ""}};
    if (const auto saved = store->Record(*id, {1, nodes}); !saved)
      left("saving nodes", saved.error().message);
    if (const auto saved =
            store->Record(*id, {2, PlanRecord{std::string(9000, 'p'), 2, 0.5, "why"}});
        !saved)
      left("saving a plan", saved.error().message);
  }
}

TEST_F(StoreProcesses, AKillAtAnyMomentLeavesWholeJobsAndNoDamage) {
  constexpr int kKills = 60;
  std::size_t stored = 0;
  std::int64_t last_told = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    // A new file from time to time, so that kills also hit its creation.
    if (kill_number % 10 == 0) {
      std::filesystem::remove_all(folder_ / "store");
      last_told = 0;
    }
    const StoreLocation location{folder_ / "store/profiles.db"};
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) StoreUntilKilled(location, told[1]);
    close(told[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(kill_number * 977 % 30000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << status;
    for (std::int64_t id = 0; read(told[0], &id, sizeof id) == sizeof id;) last_told = id;
    close(told[0]);

    auto store = FileStore::Open(location);  // this runs quick_check
    ASSERT_TRUE(store) << store.error().message;
    const auto rows = store->FindJobs(EveryJob());
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_GE(static_cast<std::int64_t>(rows->size()), last_told) << "a job that was told is gone";
    for (const JobRow& row : *rows) {
      EXPECT_EQ(row.job.config.size(), 20000u);
      EXPECT_TRUE(row.nodes.empty() || row.nodes.size() == 2) << row.nodes.size();
      EXPECT_TRUE(row.ranks == 0 || row.nodes.size() == 2)
          << "a plan is there, the nodes before it are not";
    }
    stored += rows->size();
  }
  EXPECT_GT(stored, 0u) << "every kill came too early to test anything";
}

}  // namespace
}  // namespace adaptive_train::store_processes_test
