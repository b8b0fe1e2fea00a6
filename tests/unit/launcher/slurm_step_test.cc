// What is taken from Slurm's environment and read from its commands.
#include "launcher/steps/slurm_step.h"

#include <gtest/gtest.h>

namespace adaptive_train {
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
}  // namespace adaptive_train
