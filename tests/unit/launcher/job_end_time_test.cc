// How long a job still has, by what scontrol prints.
#include "launcher/steps/job_end_time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "launcher/steps/slurm_step.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::job_end_time_test {
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
  // The end has moved to that of the grace, whosever it is.
  const std::string limited = Job("RUNNING", "2026-11-25T14:00:40", "2026-11-25T14:00:10");
  EXPECT_EQ(LeftOfRunningJob(limited, partition_, start_ + 11), 29);
  EXPECT_EQ(LeftOfRunningJob(unlimited, "PartitionName=low GraceTime=0 Hidden=NO", start_ + 11),
            std::nullopt);
  EXPECT_EQ(LeftOfRunningJob(unlimited, "", start_ + 11), std::nullopt);
}

TEST(PartitionsPreempt, IsTrueOfTheirPluginOnly) {
  const auto config = [](const std::string& type) {
    return "PreemptMode             = REQUEUE\nPreemptType             = " + type +
           "\nPreemptExemptTime       = 00:00:00\n";
  };
  EXPECT_TRUE(PartitionsPreempt(config("preempt/partition_prio")));
  EXPECT_FALSE(PartitionsPreempt(config("preempt/qos")));
  EXPECT_FALSE(PartitionsPreempt(config("preempt/none")));
  EXPECT_FALSE(PartitionsPreempt(""));
}

TEST(KillWaitOf, FindsItInTheConfiguration) {
  EXPECT_EQ(
      KillWaitOf("KeepAliveTime           = SYSTEM_DEFAULT\n"
                 "KillOnBadExit           = 0\nKillWait                = 30 sec\nNodes = 4\n"),
      30);
  EXPECT_EQ(KillWaitOf("KillOnBadExit           = 0\n"), std::nullopt);
  EXPECT_EQ(KillWaitOf("\nKillWait                = (null)\nNodes = 4\n"), std::nullopt);
}

/// With a scontrol that prints what it is told to, and nothing before it may answer.
class KillTimeTest : public testing::Test {
 protected:
  KillTimeTest() {
    std::ofstream(home_.Path() + "/scontrol")
        << "#!/bin/sh\ncd " << home_.Path()
        << "\nwhile [ ! -e may-answer ]; do sleep 0.02; done\n"
           "cat $2\n";
    std::filesystem::permissions(home_.Path() + "/scontrol", std::filesystem::perms::owner_all);
    ::setenv("PATH", (home_.Path() + ":" + path_).c_str(), 1);
  }
  ~KillTimeTest() override { ::setenv("PATH", path_.c_str(), 1); }

  void Says(const std::string& what, const std::string& text) {
    std::ofstream(home_.Path() + "/" + what) << text;
  }
  void MayAnswer() { Says("may-answer", ""); }
  static void Await(KillTime& time) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!time.Poll() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  test::TemporaryFolder home_;
  const std::string path_ = ::getenv("PATH");
};

TEST_F(KillTimeTest, OfAPreemptedJobIsTheEndOfItsGraceAndIsNotWaitedFor) {
  const std::string now = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr)));
  Says("job", Job("RUNNING", "Unknown", now));
  Says("config", "KillWait = 30 sec\nPreemptType = preempt/partition_prio\n");
  Says("partition", "PartitionName=low AllowGroups=ALL GraceTime=1000 Hidden=NO\n");
  KillTime time(7, std::chrono::seconds(60));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(time.Poll()) << "scontrol hangs";
  EXPECT_EQ(time.Left(), std::nullopt);
  MayAnswer();
  Await(time);
  ASSERT_TRUE(time.Left());
  EXPECT_LE(*time.Left(), 1000);
  EXPECT_GT(*time.Left(), 800);
  EXPECT_TRUE(time.Poll());
}

TEST_F(KillTimeTest, IsNotThePartitionsWhereAQosPreempts) {
  const std::string now = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr)));
  Says("job", Job("RUNNING", "Unknown", now));
  Says("config", "KillWait = 30 sec\nPreemptType = preempt/qos\n");
  Says("partition", "PartitionName=low AllowGroups=ALL GraceTime=1000 Hidden=NO\n");
  MayAnswer();
  KillTime time(7, std::chrono::seconds(60));
  Await(time);
  EXPECT_EQ(time.Left(), std::nullopt) << "a save begins at once";
}

TEST_F(KillTimeTest, OfAJobThatEndsIsKillWaitAfterTheSignal) {
  Says("job", Job("COMPLETING", "2026-11-25T14:01:00", "None"));
  Says("config", "KillOnBadExit           = 0\nKillWait                = 1000 sec\n");
  MayAnswer();
  KillTime time(7, std::chrono::seconds(60));
  Await(time);
  ASSERT_TRUE(time.Left());
  EXPECT_LE(*time.Left(), 1000);
  EXPECT_GT(*time.Left(), 800);
}

TEST_F(KillTimeTest, IsNotKnownWhereSlurmHangsOrThereIsNone) {
  KillTime hangs(7, std::chrono::milliseconds(30));
  Await(hangs);
  EXPECT_TRUE(hangs.Poll());
  EXPECT_EQ(hangs.Left(), std::nullopt);
  KillTime without_job(0, std::chrono::seconds(60));
  EXPECT_TRUE(without_job.Poll());
  EXPECT_EQ(without_job.Left(), std::nullopt);
  Says("scontrol", "#!/bin/sh\nexit 1\n");
  KillTime fails(7, std::chrono::seconds(60));
  Await(fails);
  EXPECT_TRUE(fails.Poll());
  EXPECT_EQ(fails.Left(), std::nullopt);
}

class JobEndTimeTest : public KillTimeTest {
 protected:
  static std::string In(int seconds) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr) + seconds));
  }
  /// Polls as often as a launcher does, for a while.
  void PollUntil(JobEndTime& end, bool (*reached)(std::optional<double> left)) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      end.Poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (!reached(end.Left()) && std::chrono::steady_clock::now() < until);
    EXPECT_TRUE(reached(end.Left())) << end.Left().value_or(-1);
  }
};

TEST_F(JobEndTimeTest, IsAskedAgainAfterAPauseAndIsWhatSlurmThenSays) {
  MayAnswer();
  Says("job", Job("RUNNING", In(1000), "None"));
  JobEndTime end(7);
  EXPECT_EQ(end.Left(), std::nullopt);
  PollUntil(end, [](std::optional<double> left) { return left && *left < 1001; });
  Says("job", Job("RUNNING", In(5000), "None"));
  end.Poll();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  end.Poll();
  ASSERT_TRUE(end.Left());
  EXPECT_LT(*end.Left(), 1001) << "the answer is not a minute old";
  std::this_thread::sleep_for(std::chrono::milliseconds(5100));  // as where the job is suspended
  PollUntil(end, [](std::optional<double> left) { return left && *left > 4000; });
  // A controller that does not answer has not moved the end.
  Says("scontrol", "#!/bin/sh\ntouch " + home_.Path() + "/asked\nexit 1\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(5100));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::filesystem::exists(home_.Path() + "/asked") &&
         std::chrono::steady_clock::now() < until) {
    end.Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(std::filesystem::exists(home_.Path() + "/asked"));
  for (int i = 0; i < 50; ++i) {
    end.Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(end.Left());
  EXPECT_GT(*end.Left(), 4000);
}

}  // namespace
}  // namespace adaptive_train::job_end_time_test
