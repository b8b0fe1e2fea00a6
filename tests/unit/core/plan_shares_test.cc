// Other shares for a plan's replicas: the same samples in the same order, where that changes nothing
// but the number of micro-batches.
#include "core/plan_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::plan_shares_test {
namespace {

using testing::HasSubstr;

/// In micro-batches of 2.
Plan PlanWith(const Shares& shares, int stages = 1, int tensor = 1) {
  Plan plan;
  plan.data = static_cast<int>(shares.size());
  plan.tensor = tensor;
  for (int stage = 0; stage < stages; ++stage) {
    plan.stages.emplace_back().chunks = {{2 * stage, 2 * stage + 2}};
    plan.global_batch = 0;
    for (int replica = 0; replica < plan.data; ++replica) {
      plan.stages.back().ring.push_back(replica);
      const std::int64_t share = shares[static_cast<std::size_t>(replica)];
      for (int t = 0; t < tensor; ++t) {
        RankPlan rank;
        rank.rank = static_cast<int>(plan.ranks.size());
        rank.stage = stage;
        rank.replica = replica;
        rank.tensor_rank = t;
        rank.device.node = "n" + std::to_string(stage * plan.data + replica);
        rank.device.kind = "cpu";
        rank.first_sample = plan.global_batch;
        rank.samples = share;
        rank.micro_batch = 2;
        plan.ranks.push_back(rank);
      }
      plan.global_batch += share;
    }
  }
  return plan;
}

TEST(WithShares, TheSameSamplesInTheSameOrderWithTheSameMicroBatches) {
  for (const int tensor : {1, 2}) {
    const Plan changed = WithShares(PlanWith({4, 4, 2}, 1, tensor), {1, 6, 3}).value();
    EXPECT_EQ(ReplicaSharesOf(changed), (Shares{1, 6, 3}));
    std::int64_t next = 0;
    for (const RankPlan& rank : changed.ranks) {
      EXPECT_EQ(rank.first_sample, next);
      EXPECT_EQ(rank.micro_batch, 2);
      if (rank.tensor_rank == tensor - 1) next += rank.samples;
    }
    EXPECT_EQ(next, 10);
    EXPECT_TRUE(PlanFromJson(ToJson(changed)));
  }
  const Plan staged = WithShares(PlanWith({8, 8}, 2), {4, 12}).value();
  EXPECT_TRUE(PlanFromJson(ToJson(staged)));
  EXPECT_EQ(ReplicaSharesOf(WithShares(staged, {8, 8}).value()), (Shares{8, 8})) << "and back";
}

TEST(WithShares, RefusesWhatDoesNotFit) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const Shares& wrong : std::vector<Shares>{
           {5, 5}, {0, 8, 2}, {-1, 9, 2}, {4, 4, 3}, {4, 4, 1}, {kHuge, kHuge, 2}, {}})
    EXPECT_FALSE(WithShares(PlanWith({4, 4, 2}), wrong));
  EXPECT_FALSE(WithShares(PlanWith({8, 8}, 2), {5, 11})) << "no whole micro-batches";
  EXPECT_FALSE(WithShares(PlanWith({8, 8}, 2), {2, 14})) << "fewer micro-batches than stages";
}

TEST(FixedShares, SaysWhySharesStay) {
  EXPECT_EQ(FixedShares(PlanWith({4, 4})), "");
  EXPECT_EQ(FixedShares(PlanWith({8, 8}, 2)), "");
  EXPECT_THAT(FixedShares(PlanWith({4})), HasSubstr("one replica"));
  EXPECT_THAT(FixedShares(PlanWith({8, 2}, 2)), HasSubstr("fewer micro-batches than stages"));
  EXPECT_THAT(FixedShares(PlanWith({7, 9}, 2)), HasSubstr("several sizes"));
  Plan plan = PlanWith({4, 4});
  plan.orders.reproducible = Reproducible::kLayout;
  EXPECT_THAT(FixedShares(plan), HasSubstr("train.reproducible"));
  EXPECT_FALSE(WithShares(plan, {2, 6}));
  plan = PlanWith({8, 8}, 2);
  plan.schedule = ScheduleKind::kGPipe;
  EXPECT_THAT(FixedShares(plan), HasSubstr("gpipe"));
  plan.listed = {"", ""};
  EXPECT_THAT(FixedShares(plan), HasSubstr("list"));
}

}  // namespace
}  // namespace adaptive_train::plan_shares_test
