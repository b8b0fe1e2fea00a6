// What a configuration asks of the planner.
#include "launcher/run/plan_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::plan_request_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PlanRequest Asking(const std::string& layout, AutoInt pipeline = {},
                   const std::string& schedule = "auto") {
  Config config;
  config.model.layers = 6;
  config.parallel.layout = layout;
  config.parallel.pipeline = pipeline;
  config.parallel.schedule = schedule;
  return RequestOf(config);
}

TEST(RequestOf, ALayoutByHandFixesStagesAndTheirLayers) {
  EXPECT_THAT(Asking("auto").cut, IsEmpty());
  EXPECT_FALSE(Asking("auto").pipeline);
  const PlanRequest request = Asking("E|t*3|tt|tL");
  EXPECT_THAT(request.cut, ElementsAre(0, 1, 4, 6, 8));
  EXPECT_EQ(request.pipeline, 4);
  EXPECT_TRUE(request.schedule.IsOpen()) << "whichever schedule is fastest";
}

TEST(RequestOf, ALayoutByHandOfSeveralChunksFixesThese) {
  const PlanRequest chunks = Asking("E|t*3|tt|tL", 2);
  EXPECT_THAT(chunks.cut, ElementsAre(0, 1, 4, 6, 8));
  EXPECT_EQ(chunks.pipeline, 2);
  EXPECT_EQ(chunks.schedule.Chunks(), 2);
  EXPECT_EQ(chunks.schedule.Kind(), ScheduleKind::kInterleaved);
  const PlanRequest one = Asking("E|t*3|tt|tL", 4, "interleaved");
  EXPECT_EQ(one.pipeline, 4);
  EXPECT_EQ(one.schedule.Chunks(), 1);
}

TEST(RequestOf, ARunOnGpusHasWholeReplicasUnlessMoreIsAskedFor) {
  Config config;
  config.device.kind = "cuda";
  PlanRequest request = RequestOf(config);
  EXPECT_FALSE(request.data);
  EXPECT_EQ(request.tensor, 1);
  EXPECT_EQ(request.pipeline, 1);
  EXPECT_EQ(request.shard, 0);
  EXPECT_FALSE(request.compression);
  EXPECT_EQ(OrdersOf(config).compression.mode, CompressionMode::kOff);
  config.parallel.pipeline = 2;
  config.compression.mode = CompressionMode::kTopk;
  request = RequestOf(config);
  EXPECT_EQ(request.pipeline, 2);
  EXPECT_TRUE(request.compression);
}

TEST(RequestOf, LocalStepsHaveWholeReplicas) {
  Config config;
  config.compression.mode = CompressionMode::kLocal;
  config.compression.local_steps = 32;
  const PlanRequest request = RequestOf(config);
  EXPECT_EQ(request.tensor, 1);
  EXPECT_EQ(request.pipeline, 1);
  EXPECT_EQ(request.shard, 0);
  ASSERT_TRUE(request.compression);
  EXPECT_EQ(request.compression->local_steps, 32);
  EXPECT_EQ(request.compression->feedback_copies, 0);
}

TEST(RequestOf, AutoCountsOnAllElementsInFourBits) {
  Config config;
  config.compression.mode = CompressionMode::kAuto;
  CompressionRequest request = RequestOf(config).compression.value();
  EXPECT_TRUE(request.packed);
  EXPECT_FALSE(request.always);
  EXPECT_DOUBLE_EQ(request.density, 1);
  EXPECT_DOUBLE_EQ(request.value_bits, 4.125);
  const double of_int4 = request.feedback_copies;
  config.compression.values = ValueEncoding::kBf16;
  request = RequestOf(config).compression.value();
  EXPECT_FALSE(request.packed);
  EXPECT_LT(request.density, 0.5);
  EXPECT_GT(request.feedback_copies, 2);
  EXPECT_LT(of_int4, 3);
}

TEST(ClusterOf, HasTheGpusOfNodesWhereThoseAreAskedFor) {
  std::vector<NodeCheck> checks(2);
  checks[0].node.name = "n1";
  checks[1].node.name = "n2";
  for (NodeCheck& check : checks) check.node.processors.allowed_threads = 8;
  checks[1].node.gpus = {{0, "H200", "GPU-a", "", 7, 0, {}}, {1, "H200", "GPU-b", "", 7, 0, {}}};
  Config config;
  EXPECT_EQ(ClusterOf({}, checks, config).devices.size(), 2U);
  config.device.kind = "cuda";
  const std::vector<Device> devices = ClusterOf({}, checks, config).devices;
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].node, "n2");
  EXPECT_EQ(devices[1].kind, "cuda");
  EXPECT_EQ(devices[1].index, 1);
  EXPECT_EQ(devices[1].uuid, "GPU-b");
  EXPECT_EQ(devices[1].memory_bytes, 7);
  EXPECT_EQ(devices[1].threads, 4) << "the node's GPUs share its threads";
}

TEST(ClusterOf, KnowsTheSpeedsThatTheSiteHasSet) {
  std::vector<NodeCheck> checks(2);
  checks[0].node.name = "n1";
  checks[0].node.processors.model = "Old";
  checks[1].node.name = "n2";
  checks[1].node.processors.model = "New";
  for (NodeCheck& check : checks) check.node.processors.allowed_threads = 8;
  checks[0].node.gpus = {{0, "H200", "GPU-a", "", 7, 0, {}}};
  Config config;
  config.device.speeds = {{"Old", 0.05, 4}, {"H200", 40, 0}};
  EXPECT_EQ(ClusterOf({}, checks, config).devices.at(0).product_flops, 0)
      << "of the other nothing is known";
  config.device.speeds.push_back({"New", 0.2, 0});
  const std::vector<Device> cpus = ClusterOf({}, checks, config).devices;
  ASSERT_EQ(cpus.size(), 2U);
  EXPECT_DOUBLE_EQ(cpus[0].product_flops, 8 * 0.05e12);
  EXPECT_DOUBLE_EQ(cpus[0].copy_bytes_per_second, 8 * 4e9);
  EXPECT_DOUBLE_EQ(cpus[1].product_flops, 8 * 0.2e12);
  config.device.threads = 1;
  EXPECT_DOUBLE_EQ(ClusterOf({}, checks, config).devices.at(1).product_flops, 0.2e12);
  config.device.kind = "cuda";
  EXPECT_DOUBLE_EQ(ClusterOf({}, checks, config).devices.at(0).product_flops, 40e12);
}

}  // namespace
}  // namespace adaptive_train::plan_request_test
