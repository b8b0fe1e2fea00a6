// Detects launchers that are certainly gone: real processes, and rows of other hosts, boots and
// namespaces.
#include "db/launcher_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adaptive_train::launcher_process_test {
namespace {

TEST(LauncherProcess, ALivingProcessIsNotGone) {
  const LauncherProcess me = ThisProcess();
  EXPECT_EQ(me.pid, getpid());
  EXPECT_FALSE(me.host.empty());
  EXPECT_GT(me.start_ticks, 0);
  EXPECT_FALSE(IsGone(me));
}

/// The child's own identity and its pid; the child waits for a signal.
LauncherProcess StartChild() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::int64_t ticks = ThisProcess().start_ticks;
    if (write(ends[1], &ticks, sizeof ticks) != sizeof ticks) _exit(1);
    alarm(60);
    pause();
    _exit(0);
  }
  LauncherProcess process = ThisProcess();
  process.pid = child;
  EXPECT_EQ(read(ends[0], &process.start_ticks, sizeof process.start_ticks),
            static_cast<ssize_t>(sizeof process.start_ticks));
  close(ends[0]);
  close(ends[1]);
  return process;
}

TEST(LauncherProcess, AnEndedProcessIsGoneAlsoBeforeItIsReaped) {
  const LauncherProcess child = StartChild();
  const auto pid = static_cast<pid_t>(child.pid);
  EXPECT_FALSE(IsGone(child));
  kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(IsGone(child));
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(IsGone(child));
}

TEST(LauncherProcess, AnotherProcessWithTheSameNumberDoesNotCount) {
  LauncherProcess earlier = ThisProcess();
  earlier.start_ticks -= 1;
  EXPECT_TRUE(IsGone(earlier));
}

TEST(LauncherProcess, AnEarlierBootIsGone) {
  LauncherProcess earlier = ThisProcess();
  earlier.boot_id = "00000000-0000-0000-0000-000000000000";
  EXPECT_TRUE(IsGone(earlier));
}

TEST(LauncherProcess, WhatCannotBeSeenFromHereIsNotGone) {
  LauncherProcess elsewhere = ThisProcess();
  elsewhere.start_ticks -= 1;
  LauncherProcess other_host = elsewhere, other_namespace = elsewhere, unknown = elsewhere;
  other_host.host += "-other";
  other_namespace.pid_namespace = "pid:[1]";
  unknown.boot_id.clear();
  EXPECT_FALSE(IsGone(other_host));
  EXPECT_FALSE(IsGone(other_namespace));
  EXPECT_FALSE(IsGone(unknown));
  EXPECT_FALSE(IsGone(LauncherProcess{}));
}

}  // namespace
}  // namespace adaptive_train::launcher_process_test
