// The line of metrics.jsonl that several ranks' measurements make.
#include "core/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace adaptive_train {
namespace {

TEST(MetricsLine, SumsBytesAndTakesTheTimesOfWhoComputedLongest) {
  RankMetrics a, b;
  a.step = b.step = 3;
  a.tokens = b.tokens = 1000;
  a.step_s = 0.9, a.compute_s = 0.1, a.exposed_comm_s = 0.8;
  b.step_s = 1.0, b.compute_s = 0.75, b.exposed_comm_s = 0.25;
  a.grad_bytes = 10, b.grad_bytes = 20;
  a.flops = 1e9, b.flops = 3e9;
  a.product_peak = b.product_peak = 4e9;
  a.peak_memory_bytes = 7, b.peak_memory_bytes = 5;
  const RankMetrics ranks[] = {a, b};
  const auto json = nlohmann::json::parse(MetricsLine(ranks));
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["step_s"], 1.0);
  EXPECT_EQ(json["exposed_comm_s"], 0.25);
  EXPECT_EQ(json["tokens_per_s"], 1000.0);
  EXPECT_EQ(json["grad_bytes"], 30);
  EXPECT_EQ(json["mfu"], 0.5);
  EXPECT_EQ(json["tflops"], 4e9 / 1e12);
  EXPECT_EQ(json["peak_memory_bytes"], 7);
  EXPECT_FALSE(json.contains("validation_loss"));
}

TEST(MetricsLine, ALossThatIsNoNumberIsNull) {
  RankMetrics rank;
  rank.loss = std::nan("");
  EXPECT_TRUE(nlohmann::json::parse(MetricsLine({&rank, 1}))["loss"].is_null());
}

}  // namespace
}  // namespace adaptive_train
