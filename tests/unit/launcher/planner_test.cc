// Plans: shares that follow what devices offer, memory that must fit, requests that cannot be met.
#include "launcher/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "launcher/planner/devices.h"

namespace adaptive_train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Cluster ClusterOf(const std::vector<std::optional<double>>& quotas,
                  std::int64_t memory = std::int64_t{4} << 30, int threads = 2) {
  Cluster cluster;
  cluster.name = "test";
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    Node node;
    node.name = "n" + std::to_string(i + 1);
    node.processors.allowed_threads = threads;
    node.processors.quota_cpus = quotas[i];
    node.memory.total_bytes = memory;
    cluster.nodes.push_back(node);
  }
  cluster.devices = DevicesOf(cluster.nodes, {});
  return cluster;
}

const ModelShape kModel = ModelShape::Of({2, 2, 64, 32, 256, true});

std::vector<std::int64_t> SharesOf(const Plan& plan) {
  std::vector<std::int64_t> shares;
  for (const RankPlan& rank : plan.ranks) shares.push_back(rank.samples);
  return shares;
}

TEST(Apportion, AddsUpIsAtLeastOneAndFollowsTheWeights) {
  EXPECT_THAT(Apportion(10, {1, 1, 1, 1}), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(Apportion(10, {4, 3, 2, 1}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(Apportion(4, {100, 1, 1, 1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(Apportion(6, {100, 1, 1}), ElementsAre(4, 1, 1));
  for (std::int64_t total : {7, 64, 1001}) {
    const auto shares = Apportion(total, {0.1, 2.5, 1, 0.01, 3, 7});
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), total);
    EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 1);
  }
}

TEST(MakePlan, OneRankADeviceWithEqualShares) {
  auto plan = MakePlan(ClusterOf({{}, {}, {}, {}}), kModel, {10, {}, {}, {}});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(SharesOf(*plan), ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(plan->ranks[2].first_sample, 6);
  EXPECT_EQ(plan->ranks[3].device.node, "n4");
  EXPECT_TRUE(PlanFromJson(ToJson(*plan)));
}

TEST(MakePlan, SharesAndThreadsFollowTheQuota) {
  auto plan = MakePlan(ClusterOf({2.0, 1.0, 0.5, 0.5}), kModel, {16, {}, {}, {}});
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 4, 2, 2));
  EXPECT_EQ(plan->ranks[0].device.threads, 2);
  EXPECT_EQ(plan->ranks[3].device.threads, 1);
}

TEST(MakePlan, SharesFollowTheThreadsThatRanksReallyUse) {
  auto plan = MakePlan(ClusterOf({2.0, 8.0}, std::int64_t{4} << 30, 8), kModel, {16, {}, {}, 1});
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 8));
}

TEST(MakePlan, FewerSamplesThanDevicesLeavesTheSlowestOut) {
  auto plan = MakePlan(ClusterOf({0.2, 2.0, 1.0}), kModel, {2, {}, {}, {}});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->ranks.size(), 2u);
  EXPECT_EQ(plan->ranks[0].device.node, "n2");
  EXPECT_EQ(plan->ranks[1].device.node, "n3");
  EXPECT_THAT(testing::PrintToString(plan->why), HasSubstr("n1 is left out"));
}

TEST(MakePlan, MoreRanksThanDevicesShareNodes) {
  auto plan = MakePlan(ClusterOf({{}, {}}), kModel, {10, {}, 3, {}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks[1].device.node, "n1");
  EXPECT_EQ(plan->ranks[2].device.node, "n2");
  EXPECT_EQ(plan->ranks[0].device.threads, 1);
  EXPECT_EQ(plan->ranks[2].device.threads, 2);
}

TEST(MakePlan, MicroBatchesShrinkUntilTheyFitTheMemory) {
  const auto memory =
      static_cast<std::int64_t>(static_cast<double>(kModel.PeakBytes(5, 1, 2)) / 0.9) + 1;
  auto plan = MakePlan(ClusterOf({{}}, memory), kModel, {16, {}, {}, {}});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].micro_batch, 5);
  EXPECT_LE(static_cast<double>(plan->memory_bytes), 0.9 * static_cast<double>(memory));
  auto too_much = MakePlan(ClusterOf({{}}, memory), kModel, {16, 8, {}, {}});
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().exit_code, ExitCode::kNoPlan);
  EXPECT_TRUE(MakePlan(ClusterOf({{}}, memory), kModel, {16, 5, {}, {}}));
  EXPECT_FALSE(MakePlan(ClusterOf({{}}, kModel.PeakBytes(1, 1, 2) / 2), kModel, {16, {}, {}, {}}));
}

TEST(MakePlan, RefusesWhatCannotBe) {
  EXPECT_EQ(MakePlan(ClusterOf({}), kModel, {4, {}, {}, {}}).error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(MakePlan(ClusterOf({{}}), kModel, {4, {}, 5, {}}).error().message,
              HasSubstr("parallel.data = 5 needs"));
}

TEST(MakePlan, IsAPureFunction) {
  const Cluster cluster = ClusterOf({1.5, {}, 0.3});
  EXPECT_EQ(ToJson(*MakePlan(cluster, kModel, {33, {}, {}, {}})),
            ToJson(*MakePlan(cluster, kModel, {33, {}, {}, {}})));
}

TEST(DevicesOf, SlurmsAllocationLimitsThreads) {
  Node node;
  node.name = "n1";
  node.processors.allowed_threads = 8;
  const int cpus[] = {3};
  EXPECT_EQ(DevicesOf({&node, 1}, cpus)[0].threads, 3);
}

TEST(DescribePlan, SaysWhereAndWhy) {
  const Cluster cluster = ClusterOf({{}, {}});
  const std::string words =
      DescribePlan(*MakePlan(cluster, kModel, {3, {}, {}, {}}), cluster, kModel);
  EXPECT_THAT(words, HasSubstr("rank 1 on n2"));
  EXPECT_THAT(words, HasSubstr("2 sequences a step"));
  EXPECT_THAT(words, HasSubstr("one for each device"));
}

}  // namespace
}  // namespace adaptive_train
