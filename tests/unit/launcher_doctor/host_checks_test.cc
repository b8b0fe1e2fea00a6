// Limits, control groups and clocks as doctor sees them.
#include "launcher/doctor/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::host_checks_test {
namespace {

using testing::HasSubstr;

TEST(CheckOpenFiles, TooFewAreTroubleWithWhatMendsIt) {
  EXPECT_EQ(CheckOpenFiles(RLIM_INFINITY).severity, Severity::kGood);
  EXPECT_EQ(CheckOpenFiles(1024).severity, Severity::kGood);
  const Finding few = CheckOpenFiles(1023);
  EXPECT_EQ(few.severity, Severity::kTrouble);
  EXPECT_EQ(few.what, "the hard limit is 1023");
  EXPECT_THAT(few.mend, HasSubstr("LimitNOFILE"));
}

TEST(CheckLockedMemory, IsTroubleOnlyWhereACardNeedsIt) {
  const TemporaryFolder root;
  EXPECT_FALSE(HasRdma(root.Path()));
  EXPECT_EQ(CheckLockedMemory(64 << 10, HasRdma(root.Path())).severity, Severity::kGood);
  root.Write("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  EXPECT_TRUE(HasRdma(root.Path()));
  EXPECT_EQ(CheckLockedMemory(RLIM_INFINITY, true).severity, Severity::kGood);
  const Finding limited = CheckLockedMemory(64 << 10, true);
  EXPECT_EQ(limited.severity, Severity::kTrouble);
  EXPECT_THAT(limited.what, HasSubstr("64 KiB"));
  EXPECT_THAT(limited.mend, HasSubstr("LimitMEMLOCK=infinity"));
}

TEST(CheckMemoryGroup, TellsTheLimitAndIsTroubleWhereNoRankFits) {
  const TemporaryFolder root;
  EXPECT_EQ(CheckMemoryGroup(root.Path()).severity, Severity::kGood);
  root.Write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
  root.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.Write("proc/self/cgroup", "0::/user\n");
  root.Write("sys/fs/cgroup/user/memory.max", "4294967296\n");
  const Finding half = CheckMemoryGroup(root.Path());
  EXPECT_EQ(half.severity, Severity::kGood);
  EXPECT_EQ(half.what, "control group /user leaves 4 GiB of the host's 8 GiB");
  root.Write("sys/fs/cgroup/user/memory.max", "100000000\n");
  EXPECT_EQ(CheckMemoryGroup(root.Path()).severity, Severity::kTrouble);
}

TEST(CheckCpuGroup, LessTimeThanThreadsIsANoteAndHardlyAnyIsTrouble) {
  const TemporaryFolder root;
  root.Write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n");
  EXPECT_EQ(CheckCpuGroup(root.Path()).severity, Severity::kGood);
  EXPECT_THAT(CheckCpuGroup(root.Path()).what, HasSubstr("4 hardware threads"));
  root.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.Write("proc/self/cgroup", "0::/user\n");
  root.Write("sys/fs/cgroup/user/cpu.max", "400000 100000\n");
  EXPECT_EQ(CheckCpuGroup(root.Path()).severity, Severity::kGood) << "as much as there is";
  root.Write("sys/fs/cgroup/user/cpu.max", "150000 100000\n");
  const Finding some = CheckCpuGroup(root.Path());
  EXPECT_EQ(some.severity, Severity::kNote);
  EXPECT_EQ(some.what, "control groups leave the time of 1.5 of 4 hardware threads");
  EXPECT_THAT(some.mend, HasSubstr("--cpus-per-task"));
  root.Write("sys/fs/cgroup/user/cpu.max", "10000 100000\n");
  EXPECT_EQ(CheckCpuGroup(root.Path()).severity, Severity::kTrouble);
}

TEST(CheckClock, OneThatNothingKeepsIsANote) {
  timex clock{};
  EXPECT_EQ(CheckClock(TIME_OK, clock).severity, Severity::kGood);
  EXPECT_EQ(CheckClock(TIME_ERROR, clock).severity, Severity::kNote);
  clock.status = STA_UNSYNC;
  EXPECT_EQ(CheckClock(TIME_OK, clock).severity, Severity::kNote);
  EXPECT_EQ(CheckClock(-1, timex{}).severity, Severity::kNote);
}

}  // namespace
}  // namespace adaptive_train::host_checks_test
