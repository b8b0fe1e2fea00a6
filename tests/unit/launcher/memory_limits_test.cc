// What holds a job to less memory than its nodes have: Slurm's variables, and control groups as they
// appear under /proc and /sys.
#include "launcher/nodes/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/plan_request.h"
#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::memory_limits_test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr char kMountV2[] = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
constexpr char kMountV1[] =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(ControlGroupLimit, IsAbsentWithoutControlGroups) {
  const TemporaryFolder root;
  EXPECT_FALSE(ControlGroupLimit(root.Path()));
}

TEST(ControlGroupLimit, TakesTheTightestOfAllParentsOfVersion2) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV2);
  root.Write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  const std::string top = "sys/fs/cgroup/slurm";
  root.Write(top + "/job_7/step_0/memory.max", "max\n");
  EXPECT_FALSE(ControlGroupLimit(root.Path()));
  root.Write(top + "/memory.max", "9000000000\n");
  EXPECT_EQ(ControlGroupLimit(root.Path())->bytes, 9'000'000'000);
  root.Write(top + "/job_7/memory.max", "500000000\n");
  root.Write(top + "/job_7/step_0/memory.max", "800000000\n");
  const auto limit = ControlGroupLimit(root.Path());
  EXPECT_EQ(limit->bytes, 500'000'000);
  EXPECT_EQ(limit->by, "control group /slurm/job_7");
}

TEST(ControlGroupLimit, ReadsVersion1WhereANumberBeyondAllMemoryIsNone) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV1);
  root.Write("proc/self/cgroup", "8:memory:/job\n1:cpu:/other\n0::/\n");
  root.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(ControlGroupLimit(root.Path()));
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n");
  const auto limit = ControlGroupLimit(root.Path());
  EXPECT_EQ(limit->bytes, 2'000'000'000);
  EXPECT_EQ(limit->by, "control group /");
}

TEST(ControlGroupLimit, IgnoresNonsense) {
  const TemporaryFolder root;
  root.Write("proc/self/mountinfo", kMountV2);
  root.Write("proc/self/cgroup", "0::/a\n");
  for (const char* text : {"", "-5\n", "0\n", "many\n", "99999999999999999999999\n"}) {
    root.Write("sys/fs/cgroup/a/memory.max", text);
    EXPECT_FALSE(ControlGroupLimit(root.Path())) << text;
  }
}

TEST(ParseMemory, ReadsWhatSlurmWrites) {
  EXPECT_EQ(*ParseMemory("X", "500"), 500 * kMiB);
  EXPECT_EQ(*ParseMemory("X", "500M"), 500 * kMiB);
  EXPECT_EQ(*ParseMemory("X", "2G"), 2048 * kMiB);
  EXPECT_EQ(*ParseMemory("X", "1T"), kMiB * kMiB);
  EXPECT_EQ(*ParseMemory("X", "1024K"), kMiB);
  EXPECT_EQ(*ParseMemory("X", "0"), 0);
  EXPECT_EQ(*ParseMemory("X", "9223372036854775807"), 0);   // no limit
  EXPECT_EQ(*ParseMemory("X", "99999999999999999999"), 0);  // no limit
}

TEST(ParseMemory, RefusesAllElse) {
  for (const char* text : {"x", "5X", "5GB", "-5", " 5", "G"}) {
    const auto bytes = ParseMemory("SLURM_MEM_PER_CPU", text);
    ASSERT_FALSE(bytes) << text;
    EXPECT_EQ(bytes.error().exit_code, ExitCode::kPreflight);
    EXPECT_THAT(bytes.error().message, HasSubstr("SLURM_MEM_PER_CPU"));
  }
}

TEST(LimitOf, CountsWhatTheJobHasOnTheNode) {
  EXPECT_FALSE(LimitOf({}, 8, 2));
  EXPECT_EQ(LimitOf({.per_node = 100}, 8, 2)->bytes, 100);
  EXPECT_EQ(LimitOf({.per_cpu = 100}, 8, 2)->bytes, 800);
  EXPECT_EQ(LimitOf({.per_cpu = 100}, 8, 2)->by, "the job's --mem-per-cpu");
  EXPECT_EQ(LimitOf({.per_gpu = 100}, 8, 2)->bytes, 200);
  // What it is counted by is not known.
  EXPECT_FALSE(LimitOf({.per_cpu = 100, .per_gpu = 100}, 0, 0));
}

TEST(ClusterOf, DevicesHaveTheLeastOfAllLimits) {
  Allocation allocation;
  allocation.cpus = {4, 2};
  allocation.memory.per_cpu = 100 * kMiB;
  std::vector<NodeCheck> checks(2);
  for (NodeCheck& check : checks) {
    check.node.memory.total_bytes = 1000 * kMiB;
    check.node.memory.limits = {{300 * kMiB, "control group /job_7"}};
  }
  const Cluster cluster = ClusterOf(allocation, checks, Config{});
  EXPECT_EQ(cluster.devices[0].memory_bytes, 300 * kMiB);
  EXPECT_EQ(cluster.devices[1].memory_bytes, 200 * kMiB);
  EXPECT_EQ(DescribeMemory(cluster.nodes[1].memory), "0.2 GiB of 1.0 GiB: the job's --mem-per-cpu");
}

}  // namespace
}  // namespace adaptive_train::memory_limits_test
