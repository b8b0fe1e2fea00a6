// What a run's steps add up to, and the words for it.
#include "launcher/report/run_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace adaptive_train::run_statistics_test {
namespace {

StepMetrics Step(std::int64_t step, double loss, double seconds) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens = 100;
  metrics.loss = loss;
  metrics.step_s = seconds;
  metrics.mfu = 0.5 / seconds;
  return metrics;
}

TEST(RunStatistics, AddUp) {
  RunStatistics statistics;
  statistics.Add(Step(11, 4, 1), false);
  StepMetrics skipped = Step(12, 9, 3);
  skipped.skipped = true;
  statistics.Add(skipped, true);
  EXPECT_EQ(statistics.Steps(), 2);
  EXPECT_EQ(statistics.Skipped(), 1);
  EXPECT_EQ(statistics.Spikes(), 1);
  const SummaryRecord summary = statistics.Summary();
  EXPECT_EQ(summary.steps, 12);
  EXPECT_EQ(summary.tokens, 200);
  EXPECT_EQ(summary.tokens_per_s, 50);
  EXPECT_DOUBLE_EQ(*summary.mfu, 0.25);  // over the time, not the mean of the steps' own
  EXPECT_DOUBLE_EQ(*summary.robustness, 0.5);
  EXPECT_EQ(DescribeRun(statistics, 3, 1),
            "2 steps: loss 4.0000 -> 9.0000, 1 skipped, 1 loss spike, 50 tokens/s, MFU 25.0%, "
            "robustness 0.500, 1 launch retry\n");
}

Plan PlanOf(std::int64_t samples, std::int64_t micro_batch, std::optional<double> seconds) {
  Plan plan;
  plan.ranks.resize(2);
  plan.ranks[0].samples = 3;
  plan.ranks[1].samples = samples;
  plan.ranks[0].micro_batch = plan.ranks[1].micro_batch = micro_batch;
  plan.step_seconds = seconds;
  return plan;
}

TEST(RunStatistics, SayHowTheLastPlansPredictionHeld) {
  RunStatistics statistics;
  statistics.BeginPlan(PlanOf(8, 1, 7.0), 0);
  statistics.Add(Step(1, 4, 9), false);
  EXPECT_EQ(statistics.Summary().plan_step_s, 9);
  statistics.BeginPlan(PlanOf(8, 3, 2.0), 2);
  for (const double seconds : {30.0, 20.0}) statistics.Add(Step(2, 4, seconds), false);
  EXPECT_FALSE(statistics.Summary().plan_step_s) << "warm-up";
  for (const double seconds : {2.5, 2.25, 50.0}) statistics.Add(Step(3, 4, seconds), false);
  const SummaryRecord summary = statistics.Summary();
  EXPECT_EQ(summary.micro_batches, 3);
  EXPECT_EQ(summary.predicted_step_s, 2);
  EXPECT_EQ(summary.plan_step_s, 2.5);
  EXPECT_NE(
      DescribeRun(statistics, 3, 0)
          .find("3 micro-batches: a step of 2 s was predicted, 2.5 s was measured (+25.0 %)\n"),
      std::string::npos);
  statistics.BeginPlan(PlanOf(8, 3, {}), 0);
  statistics.Add(Step(4, 4, 1), false);
  EXPECT_EQ(DescribeRun(statistics, 3, 0).find("predicted"), std::string::npos);
}

TEST(RunStatistics, NameTheBestValidation) {
  RunStatistics statistics;
  const double losses[] = {std::nan(""), std::log(8.0), std::log(4.0), std::log(16.0)};
  for (int i = 0; i < 4; ++i) {
    StepMetrics step = Step(i + 1, 3, 1);
    step.validation_loss = losses[i];
    statistics.Add(step, false);
  }
  ASSERT_TRUE(statistics.BestValidation());
  EXPECT_EQ(statistics.BestValidation()->step, 3);
  const std::string text = DescribeRun(statistics, 3.25, 0);
  EXPECT_NE(text.find("validation loss 2.7726 nats per token (unigram entropy of the validation "
                      "text: 3.2500), perplexity 16.00; best 1.3863, perplexity 4.00, at step 3\n"),
            std::string::npos)
      << text;
}

TEST(RunStatistics, WithoutStepsThereIsNothingToSay) {
  EXPECT_EQ(DescribeRun(RunStatistics(), 3, 0), "");
}

}  // namespace
}  // namespace adaptive_train::run_statistics_test
