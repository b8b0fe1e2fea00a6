// Time in which a process is stopped: with a process that is.
#include "core/running_clock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace adaptive_train::running_clock_test {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using Steady = std::chrono::steady_clock;

void LookForEver() {
  for (;;) {
    RunningClock::now();
    std::this_thread::sleep_for(100ms);
  }
}

/// Says on `ready` when it waits for 3 s; the exit code tells whether that was as it should be.
[[noreturn]] void WaitWhileStopped(int ready) {
  const RunningClock::Watched watched;
  std::thread(LookForEver).detach();
  const auto began = Steady::now();
  const auto deadline = RunningClock::now() + 3s;
  if (::write(ready, "!", 1) != 1) ::_exit(3);
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, deadline, [] { return false; });
  if (Steady::now() - began < 7s) ::_exit(1);  // the stop's 4 s and the deadline's 3 s
  ::_exit(RunningClock::LeftOut() < 4s ? 2 : 0);
}

TEST(RunningClock, ADeadlineComesLaterByTheTimeInWhichItsProcessWasStopped) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) WaitWhileStopped(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]), ::close(ready[1]);
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(4s);
  ::kill(child, SIGCONT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunningClock, WhereNobodyIsBoundToLookNothingIsLeftOut) {
  const auto before = RunningClock::now();
  std::this_thread::sleep_for(RunningClock::kLongest + 100ms);
  EXPECT_GE(RunningClock::now() - before, RunningClock::kLongest);
  EXPECT_EQ(RunningClock::LeftOut(), 0s);
}

}  // namespace
}  // namespace adaptive_train::running_clock_test
