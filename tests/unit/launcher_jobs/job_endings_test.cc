// Rows whose end nobody has stored, with commands of Slurm that answer, do not answer, or are not
// there.
#include "launcher/run/job_endings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "db/file_store.h"

namespace adaptive_train::job_endings_test {
namespace {

namespace fs = std::filesystem;

constexpr double kNow = 2e9;

class JobEndingsTest : public ::testing::Test {
 protected:
  JobEndingsTest() : store_(std::move(*FileStore::InMemory())) {
    std::string pattern = (fs::temp_directory_path() / "endings-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    setenv("PATH", (folder_.string() + ":/usr/bin:/bin").c_str(), 1);
    Command("scontrol", "echo 'ClusterName             = alpha'");
    Command("sacct", "exit 1");
  }
  ~JobEndingsTest() override { fs::remove_all(folder_); }

  /// Puts a command before all others; `asked` counts its calls.
  void Command(const std::string& name, const std::string& body) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\necho >>" << folder_.string() << "/asked-" << name << "\n"
                        << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  void QueueSays(const std::string& state, int restarts = 0) {
    Command("squeue", "printf '%-20s%-20s%-10s%-22s%-22s%-60s\\n' 7 " + state + " " +
                          std::to_string(restarts) + " N/A N/A None");
  }
  std::size_t Asked(const std::string& name) const {
    std::error_code none;
    const auto size = fs::file_size(folder_ / ("asked-" + name), none);
    return none ? 0 : size;
  }

  /// A row of a launcher on another host, unless it is given.
  std::int64_t Add(std::int64_t slurm_job_id,
                   std::optional<LauncherProcess> launcher = std::nullopt) {
    JobRecord job;
    job.cluster = "alpha";
    job.slurm_job_id = slurm_job_id;
    job.user = "me";
    job.run_dir = folder_.string();
    job.start_time = kNow - 100;
    job.launcher = launcher ? *launcher : LauncherProcess{"elsewhere", "b", "p", 4711, 1};
    return *store_.BeginJob(job);
  }
  JobRow FoundOut(double now = kNow) {
    JobQuery query;
    query.all_users = true;
    auto rows = *store_.FindJobs(query);
    FindOutEndings(store_, rows, now);
    return rows.at(0);
  }
  JobState Stored() {
    JobQuery query;
    query.all_users = true;
    return store_.FindJobs(query)->at(0).state;
  }

  fs::path folder_;
  FileStore store_;
};

TEST_F(JobEndingsTest, SlurmIsAskedOnceFromAnyHost) {
  Add(7);
  QueueSays("NODE_FAIL");
  EXPECT_EQ(FoundOut().state, JobState::kNodeFail);
  EXPECT_EQ(Stored(), JobState::kNodeFail);
  EXPECT_EQ(FoundOut().reason, "Slurm says NODE_FAIL");
  EXPECT_EQ(Asked("squeue"), 1u);
}

TEST_F(JobEndingsTest, ARunThatASignalEndedIsToldApart) {
  const auto id = Add(7);
  ASSERT_TRUE(
      store_.Record(id, {1, JobEnd{JobState::kCancelled, 143, kNow, "stopped by Terminated"}}));
  QueueSays("COMPLETING");
  EXPECT_EQ(FoundOut().state, JobState::kCancelled) << "not known yet";
  QueueSays("TIMEOUT");
  const JobRow row = FoundOut();
  EXPECT_EQ(row.state, JobState::kTimeout);
  EXPECT_EQ(row.reason, "stopped by Terminated; Slurm says TIMEOUT");
  EXPECT_EQ(row.end_time, kNow);
  EXPECT_EQ(row.exit_code, 143);
}

TEST_F(JobEndingsTest, WhatSlurmSaidOfARunThatIsStillEndingStays) {
  const auto id = Add(7);
  QueueSays("TIMEOUT");
  EXPECT_EQ(FoundOut().state, JobState::kTimeout);
  ASSERT_TRUE(
      store_.Record(id, {1, JobEnd{JobState::kCancelled, 143, kNow, "stopped by Terminated"}}));
  const JobRow row = FoundOut();
  EXPECT_EQ(row.state, JobState::kTimeout);
  EXPECT_EQ(row.reason, "stopped by Terminated; Slurm says TIMEOUT");
  EXPECT_EQ(row.exit_code, 143);
}

TEST_F(JobEndingsTest, ARunThatIsTakenForLostAndEndsIsNotLost) {
  const auto id = Add(7);
  Command("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(FoundOut().state, JobState::kLost);
  ASSERT_TRUE(store_.Record(id, {1, JobEnd{JobState::kCompleted, 0, kNow, ""}}));
  EXPECT_EQ(FoundOut().state, JobState::kCompleted);
  EXPECT_EQ(FoundOut().reason, "");
}

TEST_F(JobEndingsTest, ARunThatSlurmHasNoReasonForStaysAsItEnded) {
  const auto id = Add(7);
  ASSERT_TRUE(store_.Record(id, {1, JobEnd{JobState::kCancelled, 143, kNow, "stopped"}}));
  QueueSays("FAILED");
  EXPECT_EQ(FoundOut().state, JobState::kCancelled);
  EXPECT_EQ(FoundOut().reason, "stopped");
  EXPECT_EQ(Asked("squeue"), 1u);
}

TEST_F(JobEndingsTest, ARunThatWasFollowedByAnother) {
  Add(7);
  QueueSays("PENDING", 1);
  EXPECT_EQ(FoundOut().state, JobState::kRequeued);
}

TEST_F(JobEndingsTest, AForgottenJobIsLost) {
  Add(7);
  Command("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(FoundOut().state, JobState::kLost);
  EXPECT_EQ(Stored(), JobState::kLost);
}

TEST_F(JobEndingsTest, ASlurmThatDoesNotAnswerOrIsAnothersChangesNothing) {
  Add(7);
  Add(8);
  Command("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1");
  EXPECT_EQ(FoundOut().state, JobState::kRunning);
  EXPECT_EQ(Asked("squeue"), 1u) << "it is not asked again in one go";
  QueueSays("TIMEOUT");
  Command("scontrol", "echo 'ClusterName             = beta'");
  EXPECT_EQ(FoundOut().state, JobState::kRunning);
  EXPECT_EQ(FoundOut(kNow + 2 * 86400).state, JobState::kLost);
  EXPECT_EQ(Stored(), JobState::kRunning) << "somebody may still be asked";
}

TEST_F(JobEndingsTest, AJobThatSlurmRunsIsNotLostHoweverSilent) {
  Add(7);
  QueueSays("RUNNING");
  EXPECT_EQ(FoundOut(kNow + 9 * 86400).state, JobState::kRunning);
}

TEST_F(JobEndingsTest, ALauncherThatIsSeenToLiveIsNotAskedAbout) {
  Add(7, ThisProcess());
  QueueSays("TIMEOUT");
  EXPECT_EQ(FoundOut().state, JobState::kRunning);
  EXPECT_EQ(Asked("squeue"), 0u);
}

TEST_F(JobEndingsTest, WithoutSlurmAGoneLauncherIsLostAndOneElsewhereAfterADayWithoutASign) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  LauncherProcess gone = ThisProcess();
  gone.pid = child;
  Add(0, gone);
  EXPECT_EQ(FoundOut().state, JobState::kLost);
  EXPECT_EQ(Stored(), JobState::kRunning);
}

TEST_F(JobEndingsTest, WithoutSlurmAStepIsASign) {
  Add(0);
  EXPECT_EQ(FoundOut(kNow + 3600).state, JobState::kRunning);
  EXPECT_EQ(FoundOut(kNow + 2 * 86400).state, JobState::kLost);
  std::ofstream(folder_ / "metrics.jsonl") << "{}\n";
  const auto written = std::chrono::sys_seconds(std::chrono::seconds(2'000'000'000 + 2 * 86400));
  fs::last_write_time(folder_ / "metrics.jsonl", std::chrono::file_clock::from_sys(written));
  EXPECT_EQ(FoundOut(kNow + 2 * 86400).state, JobState::kRunning);
  EXPECT_EQ(FoundOut(kNow + 4 * 86400).state, JobState::kLost);
}

}  // namespace
}  // namespace adaptive_train::job_endings_test
