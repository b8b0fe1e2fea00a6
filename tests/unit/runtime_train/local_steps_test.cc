#include "runtime/train/local_steps.h"

#include <gtest/gtest.h>

namespace adaptive_train::local_steps_test {
namespace {

TEST(LocalSteps, BeginWhenTheLearningRateHasRisenAndEndInRounds) {
  Config config;
  config.optimizer.warmup_steps = 5;
  Plan plan;
  plan.data = 2;
  plan.orders.compression.mode = CompressionMode::kLocal;
  plan.orders.compression.local_steps = 3;
  const LocalSteps steps = LocalSteps::Of(config, plan);
  for (std::int64_t step = 1; step <= 5; ++step) EXPECT_FALSE(steps.Has(step)) << step;
  for (std::int64_t step = 6; step <= 20; ++step) {
    EXPECT_TRUE(steps.Has(step)) << step;
    EXPECT_EQ(steps.EndsRound(step), step % 3 == 2) << step;  // 8, 11, 14
  }
}

TEST(LocalSteps, AreNoneOfASingleReplicaAndUnlessAskedFor) {
  Plan plan;
  plan.data = 4;
  EXPECT_FALSE(LocalSteps::Of({}, plan).Has(1000));
  plan.orders.compression.mode = CompressionMode::kLocal;
  EXPECT_TRUE(LocalSteps::Of({}, plan).Has(1000));
  plan.data = 1;
  EXPECT_FALSE(LocalSteps::Of({}, plan).Has(1000));
}

}  // namespace
}  // namespace adaptive_train::local_steps_test
