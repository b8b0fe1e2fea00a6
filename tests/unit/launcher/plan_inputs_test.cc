// What plans are made from, beyond the configuration's request.
#include "launcher/run/plan_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace adaptive_train::plan_inputs_test {
namespace {

/// Two nodes that compute, and one that is kept aside.
Cluster ThreeNodes() {
  Cluster cluster;
  for (const char* name : {"n1", "n2", "spare"}) {
    Node node;
    node.name = name;
    node.memory.total_bytes = std::int64_t{1} << 34;
    cluster.nodes.push_back(node);
  }
  for (const char* name : {"n1", "n2"}) {
    Device device;
    device.node = name;
    device.kind = "cpu";
    device.model = "any";
    device.threads = 4;
    device.memory_bytes = std::int64_t{1} << 34;
    cluster.devices.push_back(device);
  }
  return cluster;
}

PlanInputs Inputs(const Config& config, double there, double back,
                  std::optional<double> to_spare = std::nullopt) {
  Profile profile;
  profile.links = {{"n1", "n2", 1e-4, there, {}}, {"n2", "n1", 1e-4, back, {}}};
  if (to_spare) profile.links.push_back({"n1", "spare", 1e-4, *to_spare, {}});
  return InputsOf(config, ThreeNodes(), profile);
}

Config WithMode(CompressionMode mode) {
  Config config;
  config.compression.mode = mode;
  config.train.global_batch = 9;
  config.parallel.data = 2;
  return config;
}

/// Whether the plan has zstd; it must say so exactly then.
bool HasZstd(const PlanInputs& inputs) {
  const auto plan = PlanFor(inputs);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return false;
  }
  const bool zstd = plan->orders.compression.zstd;
  EXPECT_EQ(zstd, std::ranges::any_of(plan->why, [](const std::string& line) {
              return line.find("zstd") != std::string::npos;
            }));
  EXPECT_EQ(PlanFromJson(ToJson(*plan))->orders.compression.zstd, zstd);
  return zstd;
}

TEST(PlanFor, FourBitsGoThroughZstdWhereALinkIsSlow) {
  const Config config = WithMode(CompressionMode::kAuto);
  EXPECT_TRUE(HasZstd(Inputs(config, 1e9, 25e6)));
  EXPECT_FALSE(HasZstd(Inputs(config, 1e9, 1e9)));
  EXPECT_FALSE(HasZstd(Inputs(config, 1e9, 1e9, 1e6))) << "nothing goes there";
  EXPECT_FALSE(HasZstd(InputsOf(config, ThreeNodes(), {}))) << "none is known";
}

TEST(PlanFor, OnlyFourBitsOfReplicasGoThroughZstd) {
  for (const auto mode :
       {CompressionMode::kOff, CompressionMode::kVarianceTopk, CompressionMode::kLocal})
    EXPECT_FALSE(HasZstd(Inputs(WithMode(mode), 1e6, 1e6))) << NameOf(mode);
  Config all = WithMode(CompressionMode::kTopk);
  all.compression.density = 1;
  all.compression.values = ValueEncoding::kInt4;
  EXPECT_TRUE(HasZstd(Inputs(all, 1e6, 1e6)));
  all.parallel.data = 1;
  EXPECT_FALSE(HasZstd(Inputs(all, 1e6, 1e6)));
}

/// A node that is left out takes its slow links with it.
TEST(PlanFor, EachPlanDecidesByItsOwnNodes) {
  Config config = WithMode(CompressionMode::kAuto);
  PlanInputs inputs = Inputs(config, 1e9, 1e9, 1e6);
  Device device = inputs.cluster.devices.back();
  device.node = "spare";
  inputs.cluster.devices.push_back(device);
  inputs.request.data = 3;
  EXPECT_TRUE(HasZstd(inputs));
  inputs.cluster.devices.pop_back();
  inputs.request.data = 2;
  EXPECT_FALSE(HasZstd(inputs));
}

/// As a run plans again with what its ranks have measured.
TEST(SearchFrom, PricesAndOrdersAreThoseOfThePlan) {
  const PlanInputs inputs = Inputs(WithMode(CompressionMode::kAuto), 25e6, 25e6);
  const auto plan = PlanFor(inputs);
  ASSERT_TRUE(plan);
  const auto pair = SearchFrom(inputs, *plan)({}, {});
  ASSERT_TRUE(pair) << pair.error().message;
  EXPECT_TRUE(pair->now.orders.compression.zstd);
  EXPECT_TRUE(pair->candidate.orders.compression.zstd);
}

}  // namespace
}  // namespace adaptive_train::plan_inputs_test
