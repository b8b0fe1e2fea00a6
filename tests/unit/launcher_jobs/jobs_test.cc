// The jobs command as typed, on real store files.
#include "launcher/commands/jobs.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "db/file_store.h"

namespace adaptive_train::jobs_test {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class JobsTest : public ::testing::Test {
 protected:
  JobsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "jobs-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", folder_.c_str(), 1);
    setenv("TZ", "UTC0", 1);
  }
  ~JobsTest() override {
    std::error_code ignored;  // a leftover folder does not fail the test
    std::filesystem::remove_all(folder_, ignored);
  }

  static double Now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  static std::string Me() { return CallingUser(); }
  std::filesystem::path Path() const { return folder_ / ".local/state/adaptive-train/profiles.db"; }

  /// Stores a job that started `age` seconds ago and, unless it still runs, ended a second later.
  /// Returns its row's id.
  std::int64_t Store(const std::string& name, const std::string& user, std::int64_t slurm_job_id,
                     double age, JobState state = JobState::kCompleted,
                     std::optional<LauncherProcess> launcher = std::nullopt) {
    auto store = FileStore::Open(StoreLocation{Path()});
    EXPECT_TRUE(store) << store.error().message;
    JobRecord job;
    job.user = user;
    job.name = name;
    job.slurm_job_id = slurm_job_id;
    job.submit_time = job.start_time = Now() - age;
    job.launcher = launcher;
    const std::int64_t id = store->BeginJob(job).value();
    if (state != JobState::kRunning) {
      const bool well = state == JobState::kCompleted;
      EXPECT_TRUE(store->Record(id, {1, JobEnd{state, well ? 0 : 5, job.start_time + 1,
                                               well ? "" : "rank 1 was killed"}}));
    }
    return id;
  }

  static Outcome Jobs(const std::string& arguments) {
    CLI::App app("adaptive-train", "adaptive-train");
    app.require_subcommand(1);
    std::function<int()> chosen;
    AddJobsCommand(app, chosen);
    Outcome outcome;
    try {
      app.parse("jobs " + arguments);
    } catch (const CLI::ParseError& error) {
      outcome.err = error.what();
      outcome.exit_code = 2;
      return outcome;
    }
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.exit_code = chosen();
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  /// Names of the listed jobs, separated by blanks; all output on failure.
  static std::string Names(const std::string& arguments) {
    const Outcome outcome = Jobs("-n -P -o JobName " + arguments);
    if (outcome.exit_code != 0) return outcome.err;
    std::string names = outcome.out;
    std::replace(names.begin(), names.end(), '\n', ' ');
    return names.empty() ? names : names.substr(0, names.size() - 1);
  }

  std::filesystem::path folder_;
};

TEST_F(JobsTest, WithoutAStoreThereIsAnEmptyTableAndNoFileIsMade) {
  const Outcome table = Jobs("");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 2) << table.out;
  EXPECT_EQ(table.err, "");
  EXPECT_EQ(Jobs("-n").out, "");
  EXPECT_EQ(nlohmann::json::parse(Jobs("--json").out),
            nlohmann::json::parse(R"({"format_version":1,"jobs":[]})"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".local"));
}

TEST_F(JobsTest, OwnJobsUnlessOthersAreAskedFor) {
  Store("mine", Me(), 1, 0);
  Store("bobs", "bob", 2, 0);
  Store("eves", "eve", 3, 0);
  EXPECT_EQ(Names(""), "mine");
  EXPECT_EQ(Names("-a"), "mine bobs eves");
  EXPECT_EQ(Names("-u bob"), "bobs");
  EXPECT_EQ(Names("--user=bob,eve"), "bobs eves");
  EXPECT_EQ(Names("-u bob -u eve"), "bobs eves");
  EXPECT_EQ(Names("-u " + std::to_string(geteuid())), "mine");
  EXPECT_EQ(Names("-u nobody-of-that-name"), "");
  EXPECT_EQ(Jobs("-a -u bob").exit_code, 2);
}

TEST_F(JobsTest, NamedJobsWhoeversAndWhenever) {
  Store("bobs", "bob", 41, 400000);
  const std::int64_t local = Store("local", Me(), 0, 300000);
  Store("mine", Me(), 42, 0);
  EXPECT_EQ(Names("-j 41"), "bobs");
  EXPECT_EQ(Names("-j 42,L" + std::to_string(local)), "local mine");
  EXPECT_EQ(Names("-j 41,42 -u " + Me()), "mine");
  EXPECT_EQ(Names("-j 4"), "");
  EXPECT_EQ(Names("-j L" + std::to_string(local) + " -S now-1day"), "");
  for (const char* id :
       {"0", "-1", "L", "L0", "x", "41_", "41_x", "L4_1", "41.0", "41x", "99999999999999999999"}) {
    EXPECT_EQ(Names(std::string("--jobs=") + id),
              std::string("adaptive-train jobs: --jobs: '") + id +
                  "' is no job: allowed are ids of Slurm jobs (1234), of arrays and their "
                  "tasks (1230, 1230_4), and of local runs (L12)\n");
  }
  EXPECT_NE(Names("-j 1,,2").find("'1,,2' has an empty word"), std::string::npos);
}

TEST_F(JobsTest, TimeWindow) {
  Store("old", Me(), 1, 10 * 86400);
  Store("older", Me(), 2, 20 * 86400);
  const double midnight_age = Now() - std::floor(Now() / 86400) * 86400;
  Store("yesterday", Me(), 3, midnight_age + 60);
  Store("today", Me(), 4, 0);
  EXPECT_EQ(Names(""), "today");
  EXPECT_EQ(Names("-S now-2days"), "yesterday today");
  EXPECT_EQ(Names("-S now-15days -E now-5days"), "old");
  EXPECT_EQ(Names("--starttime=2001-01-01"), "older old yesterday today");
  EXPECT_EQ(Names("-S now -E now-1day").find("adaptive-train jobs: --endtime: "), 0u);
  EXPECT_EQ(Names("-S tuesday")
                .find("adaptive-train jobs: --starttime: 'tuesday' is no time: allowed are"),
            0u);
  EXPECT_EQ(
      Names("-E 2026-02-30")
          .find("adaptive-train jobs: --endtime: '2026-02-30' is no time: there is no such day"),
      0u);
}

TEST_F(JobsTest, States) {
  Store("done", Me(), 1, 0);
  Store("bad", Me(), 2, 0, JobState::kFailed);
  Store("cut", Me(), 3, 0, JobState::kNodeFail);
  Store("runs", Me(), 4, 0, JobState::kRunning);
  EXPECT_EQ(Names("-s CD"), "done");
  EXPECT_EQ(Names("-s f,NODE_FAIL"), "bad cut");
  EXPECT_EQ(Names("--state=running"), "runs");
  EXPECT_EQ(Names("-s CA"), "");
  EXPECT_EQ(Names("-s PD"),
            "adaptive-train jobs: --state: there is no state 'PD': allowed are RUNNING (R) "
            "COMPLETED (CD) FAILED (F) "
            "CANCELLED (CA) TIMEOUT (TO) NODE_FAIL (NF) OUT_OF_MEMORY (OOM) PREEMPTED (PR) "
            "REQUEUED (RQ) LOST (LO)\n");
}

/// A process of this host that has ended.
LauncherProcess EndedProcess() {
  LauncherProcess process = ThisProcess();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  process.pid = child;
  return process;
}

TEST_F(JobsTest, ARunningJobWhoseLauncherIsGoneIsShownAsLostAndNotWritten) {
  LauncherProcess elsewhere = EndedProcess();
  elsewhere.host += "-other";
  Store("here", Me(), 1, 0, JobState::kRunning);
  Store("lost", Me(), 2, 0, JobState::kRunning, EndedProcess());
  Store("elsewhere", Me(), 3, 0, JobState::kRunning, elsewhere);
  Store("done", Me(), 4, 0, JobState::kCompleted, EndedProcess());
  EXPECT_EQ(Jobs("-n -P -o JobName,State").out,
            "here|RUNNING\nlost|LOST\nelsewhere|RUNNING\ndone|COMPLETED\n");
  EXPECT_EQ(Names("-s LOST"), "lost");
  EXPECT_EQ(Names("-s R"), "here elsewhere");
  EXPECT_EQ(Names("-s R,LO,CD"), "here lost elsewhere done");
  auto store = FileStore::Open(StoreLocation{Path()});
  ASSERT_TRUE(store);
  JobQuery query;
  query.all_users = true;
  query.states = {JobState::kRunning};
  EXPECT_EQ(store->FindJobs(query)->size(), 3u);
}

TEST_F(JobsTest, ALostJobIsOfTheDayItStarted) {
  Store("lost", Me(), 1, 10 * 86400, JobState::kRunning, EndedProcess());
  Store("long", Me(), 2, 10 * 86400, JobState::kRunning);
  EXPECT_EQ(Names(""), "long");
  EXPECT_EQ(Names("-S now-15days"), "lost long");
  EXPECT_EQ(Names("-j 1"), "lost");
}

TEST_F(JobsTest, FormsOfOutput) {
  Store("mine", Me(), 7, 0, JobState::kFailed);
  EXPECT_EQ(Jobs("-o jobid,exitcode").out,
            "JobID    ExitCode\n-------- --------\n7             5:0\n");
  EXPECT_EQ(Jobs("-p -o jobid,exitcode").out, "JobID|ExitCode|\n7|5:0|\n");
  EXPECT_EQ(Jobs("-P -o jobid,exitcode").out, "JobID|ExitCode\n7|5:0\n");
  EXPECT_EQ(Jobs("--noheader --parsable2 --format=jobid%-3,jobname%30").out, "7|mine\n");
  EXPECT_EQ(Jobs("-p -P").exit_code, 2);
  const auto root = nlohmann::json::parse(Jobs("--json -n -o jobid").out);
  EXPECT_EQ(root["jobs"][0]["job_id"], "7");
  EXPECT_EQ(root["jobs"][0]["state"], "FAILED");
  const Outcome fields = Jobs("-e");
  EXPECT_EQ(fields.exit_code, 0);
  EXPECT_NE(fields.out.find("ValLoss"), std::string::npos);
  EXPECT_EQ(Jobs("--helpformat").out, fields.out);
  const Outcome unknown = Jobs("-o jobid,stat3");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err,
            "adaptive-train jobs: --format: there is no field 'stat3'; the nearest is State, and "
            "--helpformat lists all\n");
}

TEST_F(JobsTest, JsonTellsLaunchesAndFailures) {
  const std::int64_t id = Store("mine", Me(), 7, 0);
  {
    auto store = FileStore::Open(StoreLocation{Path()});
    ASSERT_TRUE(store);
    ASSERT_TRUE(
        store->Record(id, {1, LaunchRecord{1, 1, LaunchOutcome::kRetried, "the fence hung"}}));
    ASSERT_TRUE(
        store->Record(id, {2, FailureRecord{1, 2, 3, "n1", FailureKind::kKilled, "", "", ""}}));
  }
  const auto job = nlohmann::json::parse(Jobs("--json").out)["jobs"][0];
  EXPECT_EQ(job["launches"][0]["reason"], "the fence hung");
  EXPECT_EQ(job["failures"][0]["kind"], "killed");
  EXPECT_EQ(job["launch_retries"], 1);
}

TEST_F(JobsTest, StoresThatCannotBeUsedEndWithTheirCode) {
  std::filesystem::create_directories(Path().parent_path());
  std::ofstream(Path()) << "no database at all, and longer than a header";
  const Outcome corrupt = Jobs("--store file:" + Path().string());
  EXPECT_EQ(corrupt.exit_code, 6);
  EXPECT_EQ(corrupt.out, "");
  EXPECT_EQ(corrupt.err.find("adaptive-train jobs: profile store " + Path().string() +
                             ": the file is corrupt"),
            0u)
      << corrupt.err;
  EXPECT_EQ(Jobs("--store file:" + folder_.string()).exit_code, 6);
  EXPECT_EQ(Jobs("--store unix:/run/x.sock").exit_code, 6);
  EXPECT_EQ(Jobs("--store /tmp/x.db").exit_code, 2);
  EXPECT_EQ(Jobs("--store file:" + (folder_ / "none.db").string()).exit_code, 0);
}

TEST_F(JobsTest, AnUnusableDefaultStoreIsAWarning) {
  std::filesystem::create_directories(Path().parent_path());
  std::ofstream(Path()) << "no database at all, and longer than a header";
  const Outcome outcome = Jobs("-n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find("adaptive-train jobs: warning: profile store " + Path().string() +
                             ": the file is corrupt"),
            0u)
      << outcome.err;
}

TEST_F(JobsTest, ADefaultStoreThatCannotBeReadToItsEndIsAWarning) {
  Store("mine", Me(), 7, 0);
  const auto size = std::filesystem::file_size(Path());
  std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(size - 4096, 'z');
  file.close();
  const Outcome outcome = Jobs("-a -n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("adaptive-train jobs: warning: profile store"), 0u) << outcome.err;
  EXPECT_EQ(Jobs("--store file:" + Path().string()).exit_code, 6);
}

TEST_F(JobsTest, OutputThatCannotBeWrittenIsAnError) {
  Store("mine", Me(), 7, 0);
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/full", "w", stdout) == nullptr) _exit(99);
    CLI::App app;
    std::function<int()> chosen;
    AddJobsCommand(app, chosen);
    app.parse("jobs");
    _exit(chosen());
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(JobsTest, HelpHasExamples) {
  CLI::App app;
  std::function<int()> chosen;
  AddJobsCommand(app, chosen);
  const std::string help = app.get_subcommand("jobs")->help();
  EXPECT_NE(help.find("Examples:\n  adaptive-train jobs\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--starttime"), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::jobs_test
