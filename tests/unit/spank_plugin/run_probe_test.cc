// RunProbe with probes that behave and probes that do not (tests/fakes/probes).
#include "spank_plugin/run_probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "core/limits.h"
#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::plugin::run_probe_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong{20'000};
constexpr milliseconds kShort{400};

/// Processes on this machine that were started with this argument. Each test's fakes are identified
/// by their folder.
std::set<pid_t> ProcessesOf(const std::string& folder) {
  std::set<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "environ");
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (pid > 0 && environment.find("TEST_FOLDER=" + folder) != std::string::npos) pids.insert(pid);
  }
  return pids;
}

/// Whether one of them executes this program.
bool Executes(const std::string& folder, const std::string& program) {
  const std::set<pid_t> pids = ProcessesOf(folder);
  return std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
    return name == program;
  });
}

class RunProbeTest : public testing::Test {
 protected:
  /// Copies the fakes to where nobody can reach them.
  RunProbeTest() {
    for (const auto& fake : std::filesystem::directory_iterator(FAKE_PROBES)) {
      std::filesystem::copy(fake.path(), folder_.Path());
      std::filesystem::permissions(folder_.Path() / fake.path().filename(),
                                   std::filesystem::perms(0755));
    }
  }

  ProbeRequest Request(const std::string& fake, milliseconds deadline = kLong) const {
    ProbeRequest request{folder_.Path() + "/" + fake,
                         deadline,
                         kMaxSnapshotBytes,
                         {"PATH=/usr/bin:/bin", "TEST_FOLDER=" + folder_.Path()},
                         std::nullopt};
    if (::geteuid() == 0) request.run_as = ProbeIdentity{65534, 65534};
    return request;
  }

  /// Runs a fake. Nothing of it may remain, and it may not take longer than its deadline allows.
  ProbeOutcome Run(const ProbeRequest& request) const {
    const auto begin = Clock::now();
    const ProbeOutcome outcome = RunProbe(request);
    spent_ = Clock::now() - begin;
    EXPECT_LT(spent_, request.deadline + milliseconds(5'000));
    EXPECT_THAT(ProcessesOf(folder_.Path()), IsEmpty());
    EXPECT_EQ(outcome.problem.find('\n'), std::string::npos);
    EXPECT_LT(outcome.problem.size(), 500U);
    return outcome;
  }
  ProbeOutcome Run(const std::string& fake, milliseconds deadline = kLong) const {
    return Run(Request(fake, deadline));
  }

  TemporaryFolder folder_;
  mutable Clock::duration spent_{};
};

TEST_F(RunProbeTest, KeepsTheLastDocumentOfAGoodProbe) {
  const ProbeOutcome outcome = Run("two_documents");
  EXPECT_EQ(outcome.document, R"({"fake":"complete"})");
  EXPECT_EQ(outcome.problem, "");
}

TEST_F(RunProbeTest, ACrashIsNamed) {
  const ProbeOutcome outcome = Run("crash");
  EXPECT_EQ(outcome.document, "");
  EXPECT_THAT(outcome.problem, HasSubstr("/crash was ended by signal 11 (Segmentation fault)"));
}

TEST_F(RunProbeTest, WhatWasSaidBeforeACrashIsKept) {
  const ProbeOutcome outcome = Run("crash_after_cpu_part");
  EXPECT_EQ(outcome.document, R"({"fake":"cpu part"})");
  EXPECT_THAT(outcome.problem, HasSubstr("signal 11"));
}

TEST_F(RunProbeTest, AHangEndsAtTheDeadline) {
  for (const char* fake : {"hang", "hang_with_grandchild"}) {
    const ProbeOutcome outcome = Run(fake, kShort);
    EXPECT_EQ(outcome.document, "");
    EXPECT_THAT(outcome.problem, HasSubstr("did not finish within 0.4 s"));
    EXPECT_GE(spent_, kShort);
  }
}

TEST_F(RunProbeTest, WhatWasSaidBeforeAHangIsKept) {
  const ProbeOutcome outcome = Run("hang_after_cpu_part", milliseconds(1500));
  EXPECT_EQ(outcome.document, R"({"fake":"cpu part"})");
  EXPECT_THAT(outcome.problem, HasSubstr("did not finish within 1.5 s"));
}

TEST_F(RunProbeTest, ProcessesLeftBehindHoldNobodyAndAreEnded) {
  for (const char* fake : {"leave_grandchild", "leave_detached"}) {
    const ProbeOutcome outcome = Run(fake);
    EXPECT_EQ(outcome.document, R"({"fake":"complete"})") << fake;
    EXPECT_EQ(outcome.problem, "");
    EXPECT_LT(spent_, kLong / 2) << "it waited for whoever held the pipe";
  }
}

TEST_F(RunProbeTest, OtherChildrenOfTheCallerLiveOn) {
  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  Run("leave_detached");
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0);
  ::kill(other, SIGKILL);
  EXPECT_EQ(::waitpid(other, nullptr, 0), other);
}

TEST_F(RunProbeTest, GarbageIsNoDocument) {
  const ProbeOutcome outcome = Run("garbage");
  EXPECT_EQ(outcome.document, "");
  EXPECT_THAT(outcome.problem, HasSubstr("printed no JSON document, but "));
}

TEST_F(RunProbeTest, SilenceIsNoDocument) {
  EXPECT_THAT(Run("silent").problem, HasSubstr("printed no JSON document, but 0 bytes"));
}

TEST_F(RunProbeTest, AFloodIsRefusedBeforeItIsOver) {
  const ProbeOutcome outcome = Run("flood");
  EXPECT_EQ(outcome.document, "");
  EXPECT_THAT(outcome.problem, HasSubstr("printed more than 1048576 bytes"));
}

TEST_F(RunProbeTest, AFloodOfComplaintsIsSwallowed) {
  const ProbeOutcome outcome = Run("flood_of_complaints");
  EXPECT_EQ(outcome.document, R"({"fake":"complete"})");
  EXPECT_EQ(outcome.problem, "");
}

TEST_F(RunProbeTest, TheFirstComplaintIsPassedOnFitForALog) {
  EXPECT_THAT(Run("complain").problem, HasSubstr("ended with status 3: hwloc ?[31mbroke"));
}

TEST_F(RunProbeTest, AProbeThatCannotStartIsNamed) {
  EXPECT_THAT(Run("missing").problem,
              HasSubstr("/missing did not start: execve: No such file or directory"));
  EXPECT_THAT(Run("no_interpreter").problem,
              HasSubstr("did not start: execve: No such file or directory"));
  EXPECT_THAT(Run(".").problem, HasSubstr("did not start: execve: Permission denied"));
  folder_.Write("text", "no program");
  EXPECT_THAT(Run("text").problem, HasSubstr("did not start: execve: Permission denied"));
}

/// The error of RunProbe in a separate process with a limit set.
std::string ProblemUnderLimit(const ProbeRequest& request, __rlimit_resource resource,
                              rlim_t limit) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const auto left = [](const char* what) {
    std::perror(what);
    ::_exit(1);
  };
  const pid_t child = ::fork();
  if (child == 0) {
    // Root has no limit of processes; this user has none running.
    if (::geteuid() == 0 && ::setresuid(65533, 65533, 65533) != 0) left("setresuid");
    const rlimit set{limit, limit};
    if (::setrlimit(resource, &set) != 0) left("setrlimit");
    const std::string problem = RunProbe(request).problem;
    if (::write(pipe_ends[1], problem.data(), problem.size()) < 0) left("write");
    ::_exit(0);
  }
  ::close(pipe_ends[1]);
  char problem[1024];
  const ssize_t n = ::read(pipe_ends[0], problem, sizeof problem);
  ::close(pipe_ends[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the process with the limit ended otherwise";
  return std::string(problem, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
}

TEST_F(RunProbeTest, ANodeOutOfProcessesOrDescriptorsIsNamed) {
  ProbeRequest request = Request("two_documents");
  EXPECT_EQ(ProblemUnderLimit(request, RLIMIT_NPROC, 0),
            "cannot start the probe: fork: Resource temporarily unavailable");
  for (const rlim_t few : {5, 8, 13}) {
    EXPECT_THAT(ProblemUnderLimit(request, RLIMIT_NOFILE, few),
                HasSubstr("cannot start the probe: pipe: "));
  }
  // A non-root user cannot become nobody; the probe must not run with the caller's rights instead.
  request.run_as = ProbeIdentity{65534, 65534};
  EXPECT_THAT(ProblemUnderLimit(request, RLIMIT_NOFILE, 100),
              HasSubstr("did not start: setgroups, setgid or setuid: Operation not permitted"));
}

TEST_F(RunProbeTest, AProbeStartsWithoutAnyOfTheCallersRightsOrThings) {
  const int leaked = ::open("/dev/null", O_RDONLY);
  ASSERT_EQ(::dup2(leaked, 77), 77);
  const auto ignore_before = ::signal(SIGUSR1, SIG_IGN);
  sigset_t blocked, mask_before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &mask_before);
  ::setenv("SECRET", "of the caller", 1);

  const ProbeOutcome outcome = Run("tell_surroundings");

  ::unsetenv("SECRET");
  ::sigprocmask(SIG_SETMASK, &mask_before, nullptr);
  ::signal(SIGUSR1, ignore_before);
  ::close(leaked);
  ::close(77);
  ASSERT_EQ(outcome.problem, "");
  if (::geteuid() == 0) {
    EXPECT_THAT(
        outcome.document,
        HasSubstr(
            R"("uid":"65534 65534 65534 65534","gid":"65534 65534 65534 65534","groups":"")"));
  }
  EXPECT_THAT(outcome.document, HasSubstr(R"("session":"own","directory":"/")"));
  // 255 and 3 belong to the fake: its shell reads its script and this list through them.
  EXPECT_THAT(outcome.document, HasSubstr(R"("descriptors":"0 1 2 255 3")"));
  EXPECT_THAT(
      outcome.document,
      HasSubstr(
          R"("no_new_privileges":"1","ignored_signals":"0000000000000000","blocked_signals":"0000000000000000","core":"0")"));
  EXPECT_THAT(
      outcome.document,
      HasSubstr("\"environment\":\"PATH=/usr/bin:/bin TEST_FOLDER=" + folder_.Path() + "\""));
}

TEST_F(RunProbeTest, ACallerWithoutStandardDescriptorsIsServedToo) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    ::_exit(RunProbe(Request("two_documents")).document == R"({"fake":"complete"})" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RunProbeTest, TheProbeDiesWithItsCaller) {
  const pid_t caller = ::fork();
  if (caller == 0) {
    RunProbe(Request("hang", kLong));
    ::_exit(0);
  }
  const auto give_up = Clock::now() + kLong;
  // A process has no environment while it executes a file, and the fake executes two.
  bool started = false;
  while (!(started = Executes(folder_.Path(), "sleep")) && Clock::now() < give_up) ::usleep(10'000);
  ASSERT_TRUE(started);
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  while (!ProcessesOf(folder_.Path()).empty() && Clock::now() < give_up) ::usleep(10'000);
  EXPECT_THAT(ProcessesOf(folder_.Path()), IsEmpty());
}

TEST(LastDocument, TakesWholeLinesThatLookLikeObjects) {
  EXPECT_EQ(LastDocument(""), "");
  EXPECT_EQ(LastDocument("{}"), "");
  EXPECT_EQ(LastDocument("{}\n"), "{}");
  EXPECT_EQ(LastDocument("{\"a\":1}\n{\"a\":2}\n{\"a\":3"), "{\"a\":2}");
  EXPECT_EQ(LastDocument("{\"a\":1}\n[1]\n}{\ntext\n\n{\n"), "{\"a\":1}");
  EXPECT_EQ(LastDocument(std::string_view("{\"a\":1}\n{\0}\n", 12)), "{\"a\":1}");
}

}  // namespace
}  // namespace adaptive_train::plugin::run_probe_test
