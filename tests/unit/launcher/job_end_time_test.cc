// How long a job still has, by what scontrol prints.
#include "launcher/steps/job_end_time.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

std::string Job(const std::string& state, const std::string& end, const std::string& preempted) {
  return "JobId=7 JobName=job.sh JobState=" + state +
         " Reason=None StartTime=2026-11-25T14:00:00 EndTime=" + end +
         " Deadline=N/A PreemptEligibleTime=2026-11-25T14:00:00 PreemptTime=" + preempted +
         " Partition=low AllocNode:Sid=ctl:1";
}

class LeftOfRunningJobTest : public testing::Test {
 protected:
  const double start_ = TimeOfJob(Job("RUNNING", "Unknown", "None"), "StartTime").value();
  const std::string partition_ = "PartitionName=low AllowGroups=ALL GraceTime=5 Hidden=NO\n";
};

TEST_F(LeftOfRunningJobTest, IsToItsEnd) {
  EXPECT_EQ(LeftOfRunningJob(Job("RUNNING", "2026-11-25T14:01:00", "None"), "", start_ + 55), 5);
  EXPECT_EQ(LeftOfRunningJob(Job("RUNNING", "Unknown", "None"), "", start_), std::nullopt);
  EXPECT_EQ(LeftOfRunningJob(Job("COMPLETING", "2026-11-25T14:01:00", "None"), "", start_),
            std::nullopt);
}

TEST_F(LeftOfRunningJobTest, OfAPreemptedJobIsToTheEndOfTheGrace) {
  const std::string unlimited = Job("RUNNING", "Unknown", "2026-11-25T14:00:10");
  EXPECT_EQ(LeftOfRunningJob(unlimited, partition_, start_ + 11), 4);
  const std::string limited = Job("RUNNING", "2026-11-25T14:00:12", "2026-11-25T14:00:10");
  EXPECT_EQ(LeftOfRunningJob(limited, partition_, start_ + 11), 1);
  // The grace is a QOS's.
  EXPECT_EQ(LeftOfRunningJob(limited, "PartitionName=low GraceTime=0 Hidden=NO", start_ + 11), 1);
  EXPECT_EQ(LeftOfRunningJob(unlimited, "PartitionName=low GraceTime=0 Hidden=NO", start_ + 11),
            std::nullopt);
  EXPECT_EQ(LeftOfRunningJob(unlimited, "", start_ + 11), std::nullopt);
}

TEST(KillWaitOf, FindsItInTheConfiguration) {
  EXPECT_EQ(
      KillWaitOf("KeepAliveTime           = SYSTEM_DEFAULT\n"
                 "KillOnBadExit           = 0\nKillWait                = 30 sec\nNodes = 4\n"),
      30);
  EXPECT_EQ(KillWaitOf("KillOnBadExit           = 0\n"), std::nullopt);
  EXPECT_EQ(KillWaitOf("\nKillWait                = (null)\nNodes = 4\n"), std::nullopt);
}

}  // namespace
}  // namespace adaptive_train
