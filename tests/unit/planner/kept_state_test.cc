// Copies in memory are a part of the plan's memory, or are not made.
#include "launcher/planner/kept_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace adaptive_train::kept_state_test {
namespace {

ModelShape Shape() {
  return ModelShape::Of({.layers = 2, .heads = 2, .hidden = 64, .sequence = 16, .vocab = 128});
}

/// Replicas of the whole model on n1, n1, n2.
Plan ThreeReplicas(int shard, std::int64_t memory) {
  Plan plan;
  plan.data = 3;
  plan.shard = shard;
  plan.orders.keeping.on = true;
  plan.stages = {{{{0, 4}}, {}, {}, {}}};
  for (int rank = 0; rank < 3; ++rank) {
    RankPlan& own = plan.ranks.emplace_back();
    own.rank = own.replica = rank;
    own.device.node = rank < 2 ? "n1" : "n2";
    own.device.memory_bytes = memory;
    own.memory_bytes = 1000;
  }
  plan.memory_bytes = 1000;
  return plan;
}

Cluster TwoNodes() {
  Cluster cluster;
  cluster.nodes.resize(2);
  cluster.nodes[0].name = "n1";
  cluster.nodes[1].name = "n2";
  cluster.nodes[1].switches = {"s0", "s1"};
  return cluster;
}

TEST(KeptState, NodesWithReplicasKeepItOnceEachInTwoSlots) {
  const ModelShape shape = Shape();
  const double state = 12 * static_cast<double>(shape.total.parameters);
  EXPECT_THAT(KeptBytes(shape, ThreeReplicas(0, 1)),
              testing::ElementsAre(2 * state / 2, 2 * state / 2, 2 * state));
}

TEST(KeptState, ShardsAreKeptTwiceAndResidualsByEachRank) {
  const ModelShape shape = Shape();
  const double state = 12 * static_cast<double>(shape.total.parameters);
  Plan plan = ThreeReplicas(1, 1);
  // n1's first rank keeps for n2's, and n2's for both of n1's.
  EXPECT_THAT(KeptBytes(shape, plan),
              testing::Pointwise(testing::DoubleNear(1),
                                 {2 * 2 * state / 3, 2 * state / 3, 2 * 3 * state / 3}));
  plan.orders.compression.mode = CompressionMode::kTopk;
  const double residuals = state / 3;
  EXPECT_NEAR(KeptBytes(shape, plan)[1], 2 * (state / 3 + residuals), 1);
}

TEST(KeptState, IsCountedWhereThereIsRoom) {
  const ModelShape shape = Shape();
  Plan plan = ThreeReplicas(0, std::int64_t{1} << 40);
  CountKeptState(shape, TwoNodes(), plan);
  EXPECT_TRUE(plan.orders.keeping.on);
  EXPECT_EQ(plan.memory_bytes, 1000 + 24 * shape.total.parameters);
  EXPECT_EQ(plan.ranks[0].memory_bytes, 1000 + 12 * shape.total.parameters);
  EXPECT_THAT(plan.ranks[1].switches, testing::IsEmpty());
  EXPECT_THAT(plan.ranks[2].switches, testing::ElementsAre("s0", "s1")) << "for its buddy";
}

TEST(KeptState, IsSwitchedOffInALineWhereThereIsNone) {
  Plan plan = ThreeReplicas(0, 2000);
  CountKeptState(Shape(), TwoNodes(), plan);
  EXPECT_FALSE(plan.orders.keeping.on);
  EXPECT_EQ(plan.memory_bytes, 1000);
  ASSERT_EQ(plan.why.size(), 1U);
  EXPECT_EQ(plan.why[0].rfind("the state is not kept in memory: rank 0 on n1 would need", 0), 0U);
}

}  // namespace
}  // namespace adaptive_train::kept_state_test
