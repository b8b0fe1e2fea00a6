// What is taken from Slurm's environment and read from its commands, and how its steps are killed.
#include "launcher/steps/slurm_step.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::slurm_step_test {
namespace {

TEST(WithoutInheritedShape, TakesOutWhatWouldBendAStep) {
  const Environment kept = WithoutInheritedShape({{"SLURM_JOB_ID", "7"},
                                                  {"SLURM_JOB_NODELIST", "n[1-4]"},
                                                  {"SLURM_NTASKS_PER_NODE", "2"},
                                                  {"SLURM_TRES_PER_TASK", "cpu:4"},
                                                  {"SLURM_GPUS_PER_TASK", "1"},
                                                  {"SLURM_MEM_PER_GPU", "1G"},
                                                  {"SLURM_THREADS_PER_CORE", "1"},
                                                  {"SLURM_LABELIO", "1"}});
  EXPECT_EQ(kept, (Environment{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-4]"}}));
}

TEST(NamesPlugin, ReadsSrunsList) {
  EXPECT_TRUE(NamesPlugin("MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\n", "pmix"));
  EXPECT_TRUE(NamesPlugin("srun: MPI types are...\nsrun: pmix_v4\nsrun: pmix\n", "pmix"));
  EXPECT_FALSE(NamesPlugin("MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n", "pmix"));
  EXPECT_FALSE(NamesPlugin("", "pmix"));
}

TEST(TimeOfJob, ReadsWhatScontrolShows) {
  const std::string shown =
      "JobId=7 JobName=x SubmitTime=2026-11-25T15:00:00 EndTime=2026-11-25T15:01:30 "
      "Deadline=N/A PreemptTime=None";
  EXPECT_EQ(*TimeOfJob(shown, "EndTime") - *TimeOfJob(shown, "SubmitTime"), 90);
  EXPECT_FALSE(TimeOfJob(shown, "PreemptTime"));
  EXPECT_FALSE(TimeOfJob(shown, "Time"));
  EXPECT_FALSE(TimeOfJob("", "EndTime"));
}

TEST(NodeOfError, FindsTheNodeOfSrunsAndSlurmstepdsLines) {
  EXPECT_EQ(NodeOfError("slurmstepd: error:  mpi/pmix_v4: pmixp_usock_create_srv: n1 [0]: "
                        "pmixp_utils.c:103: Cannot bind() UNIX socket "
                        "/var/spool/slurmd/stepd.slurm.pmix.5.1: Address already in use (98)"),
            "n1");
  EXPECT_EQ(NodeOfError("srun: error: Task launch for StepId=7.1 failed on node n3: "
                        "Communication connection failure"),
            "n3");
  EXPECT_EQ(NodeOfError("srun: error: Unable to create step for job 7: Invalid job id"), "");
  EXPECT_EQ(NodeOfError(""), "");
}

TEST(KindOfSrunsWords, AreKindsOfFailure) {
  EXPECT_EQ(KindOfSrunsWords("Killed"), FailureKind::kKilled);
  EXPECT_EQ(KindOfSrunsWords("Terminated"), FailureKind::kKilled);
  EXPECT_EQ(KindOfSrunsWords("Out Of Memory"), FailureKind::kOutOfMemory);
  EXPECT_EQ(KindOfSrunsWords("Segmentation fault (core dumped)"), FailureKind::kCrashed);
  EXPECT_EQ(KindOfSrunsWords("Aborted"), FailureKind::kCrashed);
  EXPECT_EQ(KindOfSrunsWords("Exited with exit code 1"), FailureKind::kCrashed);
  EXPECT_EQ(KindOfSrunsWords("Exited with exit code 16"), FailureKind::kDiverged);
  EXPECT_EQ(KindOfSrunsWords("Exited with exit code 17"), FailureKind::kUnknown);
}

/// Slurm's commands are scripts in `home_`, and run there.
class ScriptedSlurm : public testing::Test {
 protected:
  ScriptedSlurm() { ::setenv("PATH", (home_.Path() + ":" + path_).c_str(), 1); }
  ~ScriptedSlurm() override { ::setenv("PATH", path_.c_str(), 1); }

  void Script(const std::string& name, const std::string& lines) {
    std::ofstream(home_.Path() + "/" + name) << "#!/bin/bash\ncd " << home_.Path() << " || exit\n"
                                             << lines;
    std::filesystem::permissions(home_.Path() + "/" + name, std::filesystem::perms::owner_all);
  }
  std::string Text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(home_.Path() + "/" + name).rdbuf();
    return text.str();
  }

  test::TemporaryFolder home_;

 private:
  const std::string path_ = ::getenv("PATH");
};

/// That it had no time for it, once.
constexpr char kOnceBusy[] =
    "echo >>asked\nif (($(wc -l <asked) == 1)); then\n"
    "  echo \"$(basename $0): error: Zero Bytes were transmitted or received\" >&2\n  exit 1\nfi\n";

TEST_F(ScriptedSlurm, AQuestionWithoutAnAnswerIsAskedAgain) {
  Script("scontrol", kOnceBusy + std::string("echo 'JobId=7 SubmitTime=2026-11-25T15:00:00 '\n"));
  EXPECT_TRUE(SubmitTime(7));
  EXPECT_EQ(Text("asked"), "\n\n");
}

TEST_F(ScriptedSlurm, AQuestionIsAskedThreeTimes) {
  Script("scontrol", "echo >>asked\necho 'scontrol: error: down' >&2\nexit 1\n");
  const auto time = SubmitTime(7);
  ASSERT_FALSE(time);
  EXPECT_NE(time.error().message.find("scontrol: error: down"), std::string::npos)
      << time.error().message;
  EXPECT_EQ(Text("asked"), "\n\n\n");
}

TEST_F(ScriptedSlurm, AShortStepThatSlurmDidNotStartIsTriedAgain) {
  Script("srun", kOnceBusy + std::string("echo '0: here'\n"));
  const auto printed = RunOnEveryHost(1, {"probe"}, std::chrono::seconds(60));
  ASSERT_TRUE(printed) << printed.error().message;
  EXPECT_EQ(*printed, "0: here\n");
}

TEST_F(ScriptedSlurm, AShortStepThatHangsIsTriedAgain) {
  Script("srun",
         "echo >>asked\nif (($(wc -l <asked) == 1)); then exec sleep 1000; fi\necho '0: here'\n");
  const auto printed = RunOnEveryHost(1, {"probe"}, std::chrono::seconds(3));
  ASSERT_TRUE(printed) << printed.error().message;
  EXPECT_EQ(*printed, "0: here\n");
}

TEST_F(ScriptedSlurm, AShortStepWhoseCommandFailsIsNot) {
  Script("srun",
         "echo >>asked\necho 'srun: error: n1: task 0: Exited with exit code 3' >&2\nexit 3\n");
  const auto printed = RunOnEveryHost(1, {"probe"}, std::chrono::seconds(60));
  ASSERT_FALSE(printed);
  EXPECT_NE(printed.error().message.find("Exited with exit code 3"), std::string::npos)
      << printed.error().message;
  EXPECT_EQ(Text("asked"), "\n");
}

/// A step whose srun and scancel are scripts. That srun ends once there is a file "over".
class KilledStepTest : public ScriptedSlurm {
 protected:
  KilledStepTest() {
    Script("srun",
           "trap 'touch terminated over' TERM\necho $$ >pid.new && mv pid.new pid\n"
           "until [[ -e over ]]; do sleep 0.02; done\n");
    Script("scancel", "echo \"$*\" >cancelled\ntouch over\n");
    std::filesystem::create_directory(home_.Path() + "/logs");
    plan_.ranks.resize(1);
    plan_.ranks[0].device.node = "n1";
    JobStepSpec spec;
    spec.plan = &plan_;
    spec.run_dir = home_.Path();
    spec.worker = "/bin/true";
    spec.environment = CurrentEnvironment();
    auto step = SlurmSteps()(spec);
    EXPECT_TRUE(step.has_value());
    step_ = std::move(*step);
    WaitUntil([this] { return !Text("pid").empty(); });
  }
  static void WaitUntil(const std::function<bool()>& so) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!so()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void PollUntilOver() {
    WaitUntil([this] {
      step_->Poll();
      return step_->Over();
    });
  }

  Plan plan_;
  std::unique_ptr<JobStep> step_;
};

TEST_F(KilledStepTest, WhereAllRanksEndByThemselvesSlurmIsNotAsked) {
  std::ofstream(home_.Path() + "/over");
  const auto pid = static_cast<pid_t>(std::stol(Text("pid")));
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  step_->Kill("7.1");  // does not know that srun is over
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  step_->Poll();
  EXPECT_TRUE(step_->Over());
  EXPECT_EQ(Text("cancelled"), "");
}

TEST_F(KilledStepTest, RanksThatGoOnAreKilledBySlurm) {
  step_->Kill("7.1");
  PollUntilOver();
  EXPECT_EQ(Text("cancelled"), "--signal=KILL 7.1\n");
}

TEST_F(KilledStepTest, BeforeARankHasSaidItsStepSrunIsToldToEnd) {
  step_->Kill("");
  PollUntilOver();
  EXPECT_EQ(Text("cancelled"), "");
  EXPECT_TRUE(std::filesystem::exists(home_.Path() + "/terminated"));
}

}  // namespace
}  // namespace adaptive_train::slurm_step_test
