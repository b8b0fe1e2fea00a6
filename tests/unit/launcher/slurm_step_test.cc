// What is taken from Slurm's environment and read from its commands.
#include "launcher/steps/slurm_step.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace adaptive_train::slurm_step_test
