// What is read from Slurm's commands about the end of a job.
#include "launcher/steps/slurm_ending.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace adaptive_train::slurm_ending_test {
namespace {

std::string Line(std::int64_t job, const char* state, int restarts, const char* submitted,
                 const char* ended, const char* reason) {
  return fmt::format("{:<20}{:<20}{:<10}{:<22}{:<22}{:<60}\n", job, state, restarts, submitted,
                     ended, reason);
}

constexpr double kStart = 1'000'000'060;  // 2001-09-09T01:47:40
constexpr const char* kSubmitted = "2001-09-09T01:46:40";

class SlurmEndingTest : public ::testing::Test {
 protected:
  SlurmEndingTest() { setenv("TZ", "UTC0", 1), tzset(); }

  /// Of run 0, which began at kStart.
  static SlurmEnding Ending(const char* state, const char* reason, int restarts = 0,
                            const std::string& accounted = "") {
    const auto job =
        QueuedJobFrom(Line(7, state, restarts, kSubmitted, "2001-09-09T02:46:40", reason), 7);
    EXPECT_TRUE(job);
    return EndingOf(job, accounted, 0, kStart);
  }
};

TEST_F(SlurmEndingTest, TheLineOfTheJobAmongThoseOfItsArray) {
  const std::string output = Line(6, "RUNNING", 0, kSubmitted, "N/A", "None") +
                             Line(7, "TIMEOUT", 2, kSubmitted, "2001-09-09T02:46:40", "TimeLimit");
  const auto job = QueuedJobFrom(output, 7);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "TIMEOUT");
  EXPECT_EQ(job->restarts, 2);
  EXPECT_EQ(job->submit_time, 1e9);
  EXPECT_EQ(job->end_time, 1e9 + 3600);
  EXPECT_EQ(job->reason, "TimeLimit");
  EXPECT_FALSE(QueuedJobFrom(output, 8));
}

TEST_F(SlurmEndingTest, GarbageIsNoJobAndNoControlCharactersComeThrough) {
  for (const char* text : {"", "\n\n", "7", "7 RUNNING", "slurm_load_jobs error\n"})
    EXPECT_FALSE(QueuedJobFrom(text, 7)) << text;
  EXPECT_FALSE(QueuedJobFrom(Line(7, "RUNNING", -3, kSubmitted, "N/A", "None"), 7));
  const auto job = QueuedJobFrom(Line(7, "\x1b[2J", 0, "never", "N/A", "\x1b]0;x\x07"), 7);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "\\x1b[2J");
  EXPECT_EQ(job->submit_time, 0);
  EXPECT_FALSE(job->end_time);
  EXPECT_EQ(EndingOf(job, "", 0, kStart).state, JobState::kRunning);
}

TEST_F(SlurmEndingTest, SlurmsStatesInOurs) {
  EXPECT_EQ(Ending("TIMEOUT", "TimeLimit").state, JobState::kTimeout);
  EXPECT_EQ(Ending("TIMEOUT", "TimeLimit").reason, "Slurm says TIMEOUT (TimeLimit)");
  EXPECT_EQ(Ending("TIMEOUT", "TimeLimit").end_time, 1e9 + 3600);
  EXPECT_EQ(Ending("DEADLINE", "None").state, JobState::kTimeout);
  EXPECT_EQ(Ending("NODE_FAIL", "NodeDown").state, JobState::kNodeFail);
  EXPECT_EQ(Ending("OUT_OF_MEMORY", "None").state, JobState::kOutOfMemory);
  EXPECT_EQ(Ending("PREEMPTED", "None").state, JobState::kPreempted);
  EXPECT_EQ(Ending("CANCELLED", "None").state, JobState::kCancelled);
  EXPECT_EQ(Ending("FAILED", "NonZeroExitCode").state, JobState::kLost);
  EXPECT_EQ(Ending("COMPLETED", "None").state, JobState::kLost);
  for (const char* state : {"RUNNING", "SUSPENDED", "PENDING", "NOVEL"})
    EXPECT_EQ(Ending(state, "None").state, JobState::kRunning) << state;
}

TEST_F(SlurmEndingTest, WhileNodesAreClearedTheReasonTellsTheState) {
  EXPECT_EQ(Ending("COMPLETING", "TimeLimit").state, JobState::kTimeout);
  EXPECT_EQ(Ending("COMPLETING", "NodeDown").state, JobState::kNodeFail);
  EXPECT_EQ(Ending("COMPLETING", "OutOfMemory").state, JobState::kOutOfMemory);
  EXPECT_EQ(Ending("COMPLETING", "None").state, JobState::kRunning) << "not known yet";
}

TEST_F(SlurmEndingTest, ARunThatWasFollowedByAnotherWasRequeued) {
  EXPECT_EQ(Ending("RUNNING", "None", 1).state, JobState::kRequeued);
  EXPECT_EQ(Ending("PENDING", "BeginTime", 2).state, JobState::kRequeued);
  EXPECT_EQ(Ending("RUNNING", "None", 1, "PREEMPTED").state, JobState::kPreempted);
  EXPECT_EQ(Ending("RUNNING", "None", 1, "NODE_FAIL").state, JobState::kNodeFail);
}

TEST_F(SlurmEndingTest, AccountingIsAskedForTheRunOfThatTime) {
  // Two runs, and one that was cancelled before it began.
  const std::string runs =
      "NODE_FAIL|1000|1100|n1\nCANCELLED by 1000|1220|1300|n[1-2]\n"
      "CANCELLED|1220|1220|None assigned\nCANCELLED|None|1400|None assigned\n";
  EXPECT_EQ(AccountedState(runs, 1000.5), "NODE_FAIL");
  EXPECT_EQ(AccountedState(runs, 1100.9), "NODE_FAIL") << "seconds are cut off";
  EXPECT_EQ(AccountedState(runs, 1220.1), "CANCELLED");
  EXPECT_EQ(AccountedState(runs, 1219), "CANCELLED") << "by a clock that is late";
  EXPECT_EQ(AccountedState(runs, 1210), "CANCELLED");
  // The number was another job's long ago.
  EXPECT_EQ(AccountedState("PREEMPTED|1000|1100|n1\nTIMEOUT|90000|90060|n1\n", 90000.2), "TIMEOUT");
  EXPECT_EQ(AccountedState("PREEMPTED|1000|1100|n1\n", 90000.2), "");
  EXPECT_EQ(AccountedState("RUNNING|90000|Unknown|n1\n", 99999), "RUNNING");
  EXPECT_EQ(AccountedState("RUNNING|1000|Unknown|n1\nTIMEOUT|90000|90060|n1\n", 90000.2), "TIMEOUT")
      << "one that never ended, as its end was lost";
  EXPECT_EQ(AccountedState("PENDING|Unknown|Unknown|None assigned\n", 99999), "");
  for (const char* text :
       {"", "\n", "|", "||\n", "TIMEOUT", "TIMEOUT|90000", "TIMEOUT|90000|90001", "sacct: error\n"})
    EXPECT_EQ(AccountedState(text, 90000), "") << text;
}

TEST_F(SlurmEndingTest, AForgottenJobIsLostUnlessAccountingKnowsIt) {
  const SlurmEnding lost = EndingOf(std::nullopt, "", 0, kStart);
  EXPECT_EQ(lost.state, JobState::kLost);
  EXPECT_EQ(lost.slurm_state, "UNKNOWN");
  EXPECT_EQ(EndingOf(std::nullopt, "TIMEOUT", 0, kStart).state, JobState::kTimeout);
  // The number is another job's by now.
  QueuedJob another;
  another.state = "RUNNING";
  another.submit_time = kStart + 86400;
  EXPECT_EQ(EndingOf(another, "", 0, kStart).state, JobState::kLost);
}

}  // namespace
}  // namespace adaptive_train::slurm_ending_test
