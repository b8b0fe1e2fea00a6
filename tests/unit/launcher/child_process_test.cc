// Programs run beside the launcher: output, ends, deadlines, groups.
#include "launcher/steps/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/steps/stop_signals.h"

namespace adaptive_train::child_process_test {
namespace {

using testing::HasSubstr;

Result<Finished> Shell(const std::string& script,
                       std::chrono::milliseconds deadline = std::chrono::seconds(20),
                       std::size_t limit = 1 << 20) {
  return RunCommand({{"sh", "-c", script}, std::nullopt, ""}, deadline, limit);
}

TEST(RunCommand, GivesOutputErrorsAndStatus) {
  auto done = Shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->output, "out\n");
  EXPECT_EQ(done->errors, "err\n");
  EXPECT_EQ(DescribeExit(done->wait_status), "exit code 3");
}

TEST(RunCommand, TellsSignals) {
  auto done = Shell("kill -9 $$");
  ASSERT_TRUE(done);
  EXPECT_EQ(DescribeExit(done->wait_status), "killed by signal 9 (Killed)");
}

TEST(RunCommand, EndsAtItsDeadlineWithTheWholeGroup) {
  const std::string mark = "4321.5" + std::to_string(::getpid());
  auto done = Shell("sleep " + mark + " & sleep " + mark, std::chrono::milliseconds(200));
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("did not end within"));
  auto left = Shell("ps -eo args | grep -c '[s]leep " + mark + "'");
  EXPECT_EQ(left->output, "0\n");
}

TEST(RunCommand, LimitsOutput) {
  auto done = Shell("yes", std::chrono::seconds(20), 100000);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("more than 100000 bytes"));
}

TEST(RunCommand, AGrandchildThatHoldsThePipeHoldsNobody) {
  const auto begin = std::chrono::steady_clock::now();
  auto done = Shell("sleep 30 & echo out");
  ASSERT_TRUE(done);
  EXPECT_EQ(done->output, "out\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(RunCommand, WhatIsNotThereIsAnExitCode) {
  auto done = RunCommand({{"/nowhere/at/all"}, std::nullopt, ""}, std::chrono::seconds(5));
  ASSERT_TRUE(done);
  EXPECT_EQ(DescribeExit(done->wait_status), "exit code 127");
  EXPECT_THAT(done->errors, HasSubstr("/nowhere/at/all: No such file"));
}

TEST(RunCommand, TakesTheGivenEnvironmentOnly) {
  auto done = RunCommand({{"env"}, Environment{{"A", "1"}, {"PATH", "/bin:/usr/bin"}}, ""},
                         std::chrono::seconds(5));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->output, "A=1\nPATH=/bin:/usr/bin\n");
}

TEST(RunCommand, StopsWhenASignalIsHeldBack) {
  HeldSignals held;
  ::raise(SIGTERM);
  auto done = Shell("sleep 30");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().exit_code, ExitCode::kTerminated);
  int taken = 0;
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigwait(&term, &taken);
  EXPECT_FALSE(PendingStopSignal());
}

}  // namespace
}  // namespace adaptive_train::child_process_test
