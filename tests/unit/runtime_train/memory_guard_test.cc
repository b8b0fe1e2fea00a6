// A plan's peak against what is free, before anything is taken.
#include "runtime/train/memory_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::memory_guard_test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Two stages of two replicas on two nodes; ranks of 100, 100, 300 and 300 MiB. Replicas share
/// nodes.
Plan StagedPlan() {
  Plan plan;
  plan.data = 2;
  plan.stages.resize(2);
  plan.stages[0].chunks = {{0, 3}};
  plan.stages[1].chunks = {{3, 6}};
  for (int r = 0; r < 4; ++r) {
    RankPlan rank;
    rank.rank = r;
    rank.stage = r / 2;
    rank.replica = r % 2;
    rank.device.kind = "cpu";
    rank.device.node = r % 2 == 0 ? "a" : "b";
    rank.memory_bytes = (rank.stage == 0 ? 100 : 300) * kMiB;
    plan.ranks.push_back(rank);
  }
  return plan;
}

std::string WhyNot(const Plan& plan, int rank, std::int64_t node, std::int64_t process,
                   std::int64_t resident = 0) {
  const auto limit = [](std::int64_t mib, const char* by) {
    return mib < 0 ? std::optional<MemoryLimit>() : MemoryLimit{mib * kMiB, by};
  };
  const auto checked = CheckMemory(plan, rank, resident * kMiB, limit(node, "control group /job"),
                                   limit(process, "the process's limit, ulimit -d"));
  return checked ? "" : checked.error().message;
}

TEST(CheckMemory, PassesWhereAllRanksOfTheNodeFit) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(WhyNot(StagedPlan(), rank, 400, 300), "");
    EXPECT_EQ(WhyNot(StagedPlan(), rank, -1, -1), "") << "nothing is known";
    EXPECT_EQ(WhyNot(StagedPlan(), rank, 360, 280, 20), "") << "20 MiB of each are there already";
  }
}

TEST(CheckMemory, NamesStageSizesAndTheLimitInOneLine) {
  EXPECT_EQ(WhyNot(StagedPlan(), 2, 399, -1),
            "stage 1 (layers 3 to 5) needs 300 MiB, and all 2 ranks on a 400 MiB; 399 MiB are free "
            "there (control group /job): " +
                std::string(kMemoryAdvice));
  EXPECT_THAT(WhyNot(StagedPlan(), 3, 4000, 299),
              HasSubstr("stage 1 (layers 3 to 5) needs 300 MiB, 299 MiB are free for its rank (the "
                        "process's limit, ulimit -d): "));
  EXPECT_EQ(WhyNot(StagedPlan(), 1, 4000, 299), "");
}

TEST(CheckMemory, LeavesOutDevicesWithMemoryOfTheirOwn) {
  Plan plan = StagedPlan();
  plan.ranks[2].device.kind = "cuda";
  EXPECT_EQ(WhyNot(plan, 0, 100, 100), "");
  EXPECT_EQ(WhyNot(plan, 2, 1, 1), "");
}

TEST(CheckMemory, OfADeviceNamesItAndWhatIsFree) {
  Plan plan = StagedPlan();
  Device& device = plan.ranks[2].device;
  device = {"a", "cuda", 1, "H200", std::int64_t{1000} << 20};
  device.uuid = "GPU-7";
  const std::int64_t needed = plan.ranks[2].memory_bytes;
  EXPECT_TRUE(CheckDeviceMemory(plan, 2, needed));
  const auto checked = CheckDeviceMemory(plan, 2, needed - 1);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr(" of 1000 are free on H200 (GPU-7): "));
}

}  // namespace
}  // namespace adaptive_train::memory_guard_test
