// The combination of several ranks' measurements, and the step's line of metrics.jsonl.
#include "core/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace adaptive_train::step_metrics_test {
namespace {

nlohmann::json LineOf(const StepMetrics& step) { return nlohmann::json::parse(MetricsLine(step)); }

TEST(CombineRanks, SumsBytesAndTakesTheTimesOfWhoComputedLongest) {
  RankMetrics a, b;
  a.step = b.step = 3;
  a.tokens = b.tokens = 1000;
  a.step_s = 0.9, a.compute_s = 0.1, a.exposed_comm_s = 0.8;
  b.step_s = 1.0, b.compute_s = 0.75, b.exposed_comm_s = 0.25;
  a.grad_bytes = 10, b.grad_bytes = 20;
  a.param_bytes = 1, b.param_bytes = 2;
  a.activation_bytes = 100, b.activation_bytes = 200;
  a.flops = 1e9, b.flops = 3e9;
  a.product_peak = b.product_peak = 4e9;
  a.peak_memory_bytes = 7, b.peak_memory_bytes = 5;
  const RankMetrics ranks[] = {a, b};
  const StepMetrics step = CombineRanks(ranks);
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.step_s, 1.0);
  EXPECT_EQ(step.exposed_comm_s, 0.25);
  EXPECT_EQ(step.tokens_per_s, 1000.0);
  EXPECT_EQ(step.grad_bytes, 30);
  EXPECT_EQ(step.param_bytes, 3);
  EXPECT_EQ(step.activation_bytes, 300);
  EXPECT_EQ(step.mfu, 0.5);
  EXPECT_EQ(step.tflops, 4e9 / 1e12);
  EXPECT_EQ(step.peak_memory_bytes, 7);
  EXPECT_FALSE(step.validation_loss);
}

TEST(CombineRanks, WaitingForOtherStagesAtTheEndIsBubble) {
  RankMetrics first, last;
  first.step_s = last.step_s = 1;
  first.compute_s = 0.6, first.bubble_s = 0.35, first.exposed_comm_s = 0.05;
  last.compute_s = 0.7, last.bubble_s = 0.1, last.exposed_comm_s = 0.2;
  first.settling_s = 0.06, last.settling_s = 0.22;
  const StepMetrics step = CombineRanks(std::vector{first, last});
  EXPECT_DOUBLE_EQ(step.bubble_s, 0.1 + 0.16);
  EXPECT_DOUBLE_EQ(step.exposed_comm_s, 0.2 - 0.16);
  // Never more than the rank waited: other work may be in between.
  last.exposed_comm_s = 0.03;
  EXPECT_DOUBLE_EQ(CombineRanks(std::vector{first, last}).exposed_comm_s, 0);
}

TEST(CombineRanks, WaitingForAnotherReplicaIsCommunication) {
  RankMetrics first, last, other;
  first.compute_s = 0.6, last.compute_s = 0.7, other.compute_s = 0.5;
  last.bubble_s = 0.1, last.exposed_comm_s = 0.3, last.settling_s = 0.32;
  first.settling_s = 0.2, other.settling_s = 0.05, other.replica = 1;
  last.opening_comm_s = 0.01, other.opening_comm_s = 0.06;
  const StepMetrics step = CombineRanks(std::vector{first, last, other});
  EXPECT_DOUBLE_EQ(step.bubble_s, 0.1 + 0.12);
  EXPECT_DOUBLE_EQ(step.exposed_comm_s, 0.3 - 0.12);
}

TEST(CombineRanks, WaitingForAStageWhoseWeightsAreOnTheirWayIsCommunication) {
  RankMetrics first, last;
  first.compute_s = 0.6, first.exposed_comm_s = 0.15, first.opening_comm_s = 0.1;
  last.compute_s = 0.7, last.bubble_s = 0.25, last.exposed_comm_s = 0.05;
  last.opening_comm_s = 0.02;
  const StepMetrics step = CombineRanks(std::vector{first, last});
  EXPECT_DOUBLE_EQ(step.bubble_s, 0.25 - 0.08);
  EXPECT_DOUBLE_EQ(step.exposed_comm_s, 0.05 + 0.08);
}

TEST(CombineRanks, DividesByNoTimeAndNoPeak) {
  RankMetrics rank;
  rank.tokens = 10;
  rank.flops = 1;
  const StepMetrics step = CombineRanks({&rank, 1});
  EXPECT_EQ(step.tokens_per_s, 0);
  EXPECT_EQ(step.mfu, 0);
}

TEST(CombineRanks, TakesTheValidationLossOfWhoeverHasIt) {
  RankMetrics ranks[2];
  ranks[0].compute_s = 1;
  ranks[1].validation_loss = 2.5;
  EXPECT_EQ(CombineRanks(ranks).validation_loss, 2.5);
}

TEST(MetricsLine, HasEveryFieldOfTheContract) {
  StepMetrics step;
  step.step = 3;
  step.loss_scale = 65536;
  step.skipped = true;
  const auto json = LineOf(step);
  for (const char* name : {"format_version",
                           "step",
                           "tokens",
                           "loss",
                           "lr",
                           "grad_norm",
                           "loss_scale",
                           "skipped",
                           "step_s",
                           "tokens_per_s",
                           "tflops",
                           "mfu",
                           "compute_s",
                           "exposed_comm_s",
                           "bubble_s",
                           "other_s",
                           "grad_bytes",
                           "param_bytes",
                           "activation_bytes",
                           "density",
                           "comm_cpu_s",
                           "unpeeled",
                           "peak_memory_bytes"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json["loss_scale"], 65536);
  EXPECT_EQ(json["skipped"], true);
  for (const char* name : {"loss_z", "validation_loss", "validation_perplexity"})
    EXPECT_FALSE(json.contains(name)) << name;
}

TEST(MetricsLine, AddsValidationAndZWhereTheyAreKnown) {
  StepMetrics step;
  step.validation_loss = std::log(20.0);
  step.loss_z = -1.5;
  const auto json = LineOf(step);
  EXPECT_EQ(json["validation_loss"], std::log(20.0));
  EXPECT_NEAR(json["validation_perplexity"].get<double>(), 20.0, 1e-12);
  EXPECT_EQ(json["loss_z"], -1.5);
}

TEST(MetricsLine, ANumberThatIsNoneIsNull) {
  StepMetrics step;
  step.loss = std::nan("");
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.validation_loss = 1e4;  // its exp exceeds a double
  const auto json = LineOf(step);
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["validation_loss"], 1e4);
  EXPECT_TRUE(json["validation_perplexity"].is_null());
}

/// Stages differ in size: the share is that of all their gradients.
TEST(CombineRanks, TheDensityOfStagesCountsTheirElements) {
  RankMetrics large, small;
  large.gradient_entries = 900;
  large.density = 0.1;
  small.gradient_entries = 100;
  small.density = 1;
  EXPECT_DOUBLE_EQ(CombineRanks(std::vector{large, small}).density, 0.19);
  EXPECT_DOUBLE_EQ(CombineRanks(std::vector{RankMetrics()}).density, 1);
}

}  // namespace
}  // namespace adaptive_train::step_metrics_test
