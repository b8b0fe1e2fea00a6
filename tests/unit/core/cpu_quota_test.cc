// CPU limits of control groups, version 1 and 2, as they appear under /proc and /sys.
#include "core/cpu_quota.h"

#include <gtest/gtest.h>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::cpu_quota_test {
namespace {

constexpr char kMountV2[] =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kMountV1[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "34 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(ReadCpuQuota, IsAbsentWithoutControlGroups) {
  const TemporaryFolder root;
  EXPECT_EQ(ReadCpuQuota(root.Path()), std::nullopt);
}

TEST(ReadCpuQuota, TakesTheTightestOfVersion2) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV2);
  root.Write("proc/self/cgroup", "0::/system.slice/slurmd.service/job\n");
  const std::string top = "sys/fs/cgroup/system.slice";
  root.Write(top + "/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), std::nullopt);
  root.Write(top + "/slurmd.service/job/cpu.max", "800000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 8);
  root.Write(top + "/slurmd.service/cpu.max", "150000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 1.5);
  root.Write(top + "/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 1.5);
}

TEST(ReadCpuQuota, FindsTheCpuControllerOfVersion1) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV1);
  root.Write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/node\n3:cpuset:/other\n0::/\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_quota_us", "-1\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), std::nullopt);
  root.Write("sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_quota_us", "5000\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_period_us", "10000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 0.5);
}

TEST(ReadCpuQuota, TakesOffWhatLiesAboveTheMount) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", "30 23 0:26 /pod/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.Write("proc/self/cgroup", "0::/pod/a/job\n");
  root.Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  root.Write("sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 2);
}

TEST(ReadCpuQuota, AGroupOutsideOfTheMountCountsTheMount) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV2);
  root.Write("proc/self/cgroup", "0::/../elsewhere\n");
  root.Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), 3);
}

TEST(ReadCpuQuota, IgnoresNonsense) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", std::string("nonsense\n\n1 2 -\n") + kMountV2);
  root.Write("proc/self/cgroup", "nonsense\n0:\n0::/a\n");
  root.Write("sys/fs/cgroup/a/cpu.max", "0 0\n");
  root.Write("sys/fs/cgroup/cpu.max", "many few\n");
  EXPECT_EQ(ReadCpuQuota(root.Path()), std::nullopt);
}

}  // namespace
}  // namespace adaptive_train::cpu_quota_test
