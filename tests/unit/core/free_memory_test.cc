// What is free, as /proc and /sys say it.
#include "core/free_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::free_memory_test {
namespace {

TEST(FreeMemory, IsUnknownWhereNothingCanBeRead) {
  const TemporaryFolder root;
  EXPECT_FALSE(FreeMemory(root.Path()));
  root.Write("proc/meminfo", "MemTotal: many kB\nMemAvailable: -3 kB\n");
  EXPECT_FALSE(FreeMemory(root.Path()));
}

TEST(FreeMemory, IsWhatTheTightestGroupLeavesBesidesCachedFiles) {
  const TemporaryFolder root;
  root.Write("proc/meminfo", "MemTotal:  2000000 kB\nMemFree: 10 kB\nMemAvailable:  1000000 kB\n");
  EXPECT_EQ(FreeMemory(root.Path())->bytes, 1'024'000'000);
  EXPECT_EQ(FreeMemory(root.Path())->by, "the node's free memory");
  root.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.Write("proc/self/cgroup", "0::/job/step\n");
  root.Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root.Write("sys/fs/cgroup/job/memory.max", "900000000\n");
  root.Write("sys/fs/cgroup/job/memory.current", "500000000\n");
  EXPECT_EQ(FreeMemory(root.Path())->bytes, 400'000'000);
  EXPECT_EQ(FreeMemory(root.Path())->by, "control group /job");
  root.Write("sys/fs/cgroup/job/memory.stat",
             "anon 1\nactive_file 100000000\ninactive_file 50000000\n");
  EXPECT_EQ(FreeMemory(root.Path())->bytes, 550'000'000);
  root.Write("sys/fs/cgroup/job/memory.current", "990000000\n");
  root.Write("sys/fs/cgroup/job/memory.stat", "");
  EXPECT_EQ(FreeMemory(root.Path())->bytes, 0);
}

TEST(FreeMemory, ReadsVersion1) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo",
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.Write("proc/self/cgroup", "8:memory:/job\n");
  root.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000000\n");
  root.Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000000\n");
  root.Write("sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 1\ntotal_inactive_file 20000000\ntotal_active_file 30000000\n");
  EXPECT_EQ(FreeMemory(root.Path())->bytes, 250'000'000);
}

TEST(KilledForMemory, IsWhatTheInnermostGroupCounts) {
  const TemporaryFolder root;
  EXPECT_EQ(KilledForMemory(root.Path()), 0);
  root.Write("proc/self/mountinfo",
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.Write("proc/self/cgroup", "8:memory:/job\n0::/job\n");
  root.Write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 9\n");
  root.Write("sys/fs/cgroup/memory/job/memory.oom_control",
             "oom_kill_disable 1\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(KilledForMemory(root.Path()), 2);
  root.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.Write("sys/fs/cgroup/job/memory.events", "low 0\nmax 7\noom 4\noom_kill 3\n");
  EXPECT_EQ(KilledForMemory(root.Path()), 3);
}

/// Real limits are set in tests/multi_process/memory.bats.
TEST(ResidentBytes, AreThere) { EXPECT_GT(ResidentBytes(), std::int64_t{1} << 20); }

}  // namespace
}  // namespace adaptive_train::free_memory_test
