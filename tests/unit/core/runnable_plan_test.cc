// What a plan asks for that the runtime cannot do.
#include "core/runnable_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/limits.h"
#include "tests/unit/core/small_plans.h"

namespace adaptive_train::runnable_plan_test {
namespace {

TEST(RunnablePlan, SaysWhatTheRuntimeCannotRun) {
  Plan plan = TwoRanks();
  EXPECT_EQ(NotRunnable(plan), "");
  plan.shard = 2;
  EXPECT_EQ(NotRunnable(plan), "");
  Plan staged = EightRanks();
  staged.tensor = 1;
  EXPECT_EQ(NotRunnable(staged), "");
  staged.orders.compression.mode = CompressionMode::kTopk;
  EXPECT_EQ(NotRunnable(staged), "");
  Plan shared = EightRanks();
  EXPECT_EQ(NotRunnable(shared), "");
  shared.orders.compression.mode = CompressionMode::kTopk;
  EXPECT_EQ(NotRunnable(shared), "");
  shared.orders.compression.mode = CompressionMode::kSketch;
  EXPECT_NE(NotRunnable(shared).find("2 tensor ranks (parallel.tensor)"), std::string::npos);
  Plan exact = EightRanks();
  exact.orders.reproducible = Reproducible::kLayout;
  exact.schedule = ScheduleKind::kPipeDream2Bw;
  EXPECT_NE(NotRunnable(exact).find("the pipedream-2bw schedule"), std::string::npos);
  exact.schedule = ScheduleKind::kOneForwardOneBackward;
  for (const int tensor : {1, 2, 4, 8}) {
    exact.tensor = tensor;
    EXPECT_EQ(NotRunnable(exact), "") << tensor;
  }
  for (const int tensor : {3, 6, 16}) {
    exact.tensor = tensor;
    EXPECT_NE(NotRunnable(exact).find("1, 2, 4 or 8 have them"), std::string::npos) << tensor;
  }
  plan.ranks.resize(kMostRanks);
  EXPECT_EQ(NotRunnable(plan), "");
  plan.ranks.resize(kMostRanks + 1);
  EXPECT_NE(NotRunnable(plan).find("at most 4096"), std::string::npos);
}

TEST(RunnablePlan, OfLocalStepsHasWholeReplicas) {
  Plan plan = EightRanks();
  plan.orders.compression.mode = CompressionMode::kLocal;
  EXPECT_NE(NotRunnable(plan), "");
  Plan whole = plan;
  whole.tensor = 1;
  whole.data = 8;
  whole.shard = 0;
  whole.stages.resize(1);
  EXPECT_EQ(NotRunnable(whole), "");
  whole.shard = 1;
  EXPECT_EQ(
      NotRunnable(whole),
      "stages, tensor ranks, shards or older weights (parallel) with compression.mode = local");
}

TEST(RunnablePlan, OnGpusHasNotTheBitsOfAnyLayout) {
  Plan plan = EightRanks();
  plan.ranks[1].device.kind = "cuda";
  plan.orders.compression.mode = CompressionMode::kTopk;
  EXPECT_EQ(NotRunnable(plan), "");
  plan.orders.compression.mode = CompressionMode::kOff;
  plan.orders.reproducible = Reproducible::kLayout;
  EXPECT_EQ(NotRunnable(plan), "the bits of any layout (train.reproducible) on GPUs");
}

TEST(RunnablePlan, WithoutAFlushHasAMicroBatchForEachStage) {
  Plan plan = EightRanks();
  plan.schedule = ScheduleKind::kPipeDream2Bw;
  EXPECT_EQ(NotRunnable(plan), "");
  const auto read = PlanFromJson(ToJson(plan));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ScheduleNameOf(*read), "pipedream-2bw");
  for (RankPlan& rank : plan.ranks) rank.micro_batch = 2;
  EXPECT_THAT(NotRunnable(plan), testing::HasSubstr("1 micro-batches of replica 1 on 2 stages"));
  EXPECT_FALSE(PlanFromJson(ToJson(plan)));
  plan.schedule = ScheduleKind::kOneForwardOneBackward;
  EXPECT_TRUE(PlanFromJson(ToJson(plan)));
}

TEST(RunnablePlan, OfTheSameBitsInAnyLayoutHasWholeMicroBatches) {
  Plan plan = TwoRanks();
  plan.orders.reproducible = Reproducible::kLayout;
  EXPECT_THAT(NotRunnable(plan), testing::HasSubstr("rank 0's 3 samples in micro-batches of 2"));
  plan.ranks[0].samples = plan.ranks[1].first_sample = 4;
  EXPECT_EQ(NotRunnable(plan), "");
  EXPECT_EQ(UnitsOf(plan.ranks[1]), (UnitRange{2, 3}));
  plan.ranks[1].micro_batch = 1;
  EXPECT_THAT(NotRunnable(plan), testing::HasSubstr("rank 1's 2 samples in micro-batches of 1"));
  plan.ranks[1].micro_batch = 2;
  plan.orders.compression.mode = CompressionMode::kTopk;
  EXPECT_THAT(NotRunnable(plan), testing::HasSubstr("compression.mode = topk"));
}

}  // namespace
}  // namespace adaptive_train::runnable_plan_test
