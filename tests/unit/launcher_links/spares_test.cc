// Which nodes become spares: the worst first, with the right reason.
#include "launcher/nodes/spares.h"

#include <gtest/gtest.h>

#include "launcher/measure/measure_step.h"

namespace adaptive_train::spares_test {
namespace {

Cluster FourNodes() {
  Cluster cluster;
  cluster.nodes.resize(4);
  for (int i = 0; i < 4; ++i) {
    cluster.nodes[static_cast<std::size_t>(i)].name = "n" + std::to_string(i + 1);
    cluster.devices.emplace_back().node = cluster.nodes[static_cast<std::size_t>(i)].name;
  }
  return cluster;
}

/// Devices n1 to n4 of these speeds, and links of each pair at the slower end's rate.
Profile Speeds(const std::vector<double>& flops, const std::vector<double>& rates) {
  Profile profile;
  for (std::size_t i = 0; i < flops.size(); ++i)
    profile.devices.push_back({"n" + std::to_string(i + 1), "cpu", flops[i], 1e9, {1, 0, 1}});
  for (std::size_t i = 0; i < rates.size(); ++i)
    for (std::size_t j = 0; j < rates.size(); ++j)
      if (i != j)
        profile.links.push_back({"n" + std::to_string(i + 1),
                                 "n" + std::to_string(j + 1),
                                 1e-4,
                                 std::min(rates[i], rates[j]),
                                 {1, 0, 1}});
  return profile;
}

std::vector<std::string> NamesOf(const Result<std::vector<SpareNode>>& spares) {
  std::vector<std::string> names;
  for (const SpareNode& spare : spares.value()) names.push_back(spare.node);
  return names;
}

TEST(ChooseSpares, TheSlowestDeviceThenTheSlowestLinksThenTheLastNode) {
  const Profile profile = Speeds({1e11, 1e11, 6e10, 1.02e11}, {1e8, 6e7, 1e8, 1e8});
  const auto spares = ChooseSpares(FourNodes(), profile, 3);
  EXPECT_EQ(NamesOf(spares), (std::vector<std::string>{"n3", "n2", "n4"}));
  EXPECT_EQ(spares->at(0).why, "n3: its device is the slowest, 60 GFLOP/s");
  EXPECT_EQ(spares->at(1).why, "n2: its links are the slowest, 480 Mbit/s in the middle");
  EXPECT_EQ(spares->at(2).why, "n4: the last one, nothing speaks against it");
}

TEST(ChooseSpares, WhatIsFarBelowItsKindComesBeforeFailuresAndThoseBeforeSpeed) {
  Profile profile = Speeds({1e11, 1e11, 4e10, 1e11}, {});
  profile.devices[0].device_kind = profile.devices[1].device_kind = "other";
  profile.devices.push_back({"far", "cpu", 1e11, 1e9, {1, 0, 1}});
  profile.devices.push_back({"off", "cpu", 1e11, 1e9, {1, 0, 1}});
  profile.devices[1].product_flops = 9e10;
  profile.nodes = {
      {"n1", 1.5, {{FailureKind::kNodeSilent, 2}}, 9.5 * 86400}, {"n2", 0.01}, {"elsewhere", 9}};
  const auto spares = ChooseSpares(FourNodes(), profile, 3);
  EXPECT_EQ(NamesOf(spares), (std::vector<std::string>{"n3", "n1", "n2"}));
  EXPECT_EQ(spares->at(0).why, "n3: its device gives 40 GFLOP/s, others of its kind (cpu) 100");
  EXPECT_EQ(spares->at(1).why, "n1: silent twice in the last 10 days");
}

TEST(ChooseSpares, ALostLinkCountsAsLongAsBothItsEndsAreLeft) {
  Profile profile = Speeds({1e11, 1e11, 1e11, 1e11}, {});
  profile.lost_links = {{"n2", "n3", 1, 1, 60}, {"n1", "elsewhere", 9, 9, 60}};
  const auto spares = ChooseSpares(FourNodes(), profile, 2);
  EXPECT_EQ(spares->at(0).why, "n3, link n2 to n3: lost once in the last day");
  EXPECT_EQ(spares->at(1).why, "n4: the last one, nothing speaks against it");
}

TEST(ChooseSpares, ASlowLinkCountsAsLongAsBothItsEndsAreLeft) {
  Cluster cluster = FourNodes();
  for (Node& node : cluster.nodes) {
    node.nics.resize(1);
    node.nics[0].state = "up";
    node.nics[0].bits_per_second = 1'000'000'000;
  }
  Profile profile = Speeds({}, {1e8, 1e8, 1e8, 1e8});
  for (LinkMeasurement& link : profile.links)
    if (link.from == "n1" && link.to == "n2") link.bytes_per_second = 1e7;
  profile.devices = Speeds({1e11, 9e10, 1e11, 1e11}, {}).devices;
  const auto spares = ChooseSpares(cluster, profile, 2);
  // n2 is the slower end; without it nothing is held against n1.
  EXPECT_EQ(NamesOf(spares), (std::vector<std::string>{"n2", "n4"}));
  EXPECT_EQ(spares->at(0).why, "n2: links far slower than others of their kind: 1");
}

TEST(ChooseSpares, WithNothingKnownTheLastNodesGo) {
  EXPECT_EQ(NamesOf(ChooseSpares(FourNodes(), {}, 2)), (std::vector<std::string>{"n4", "n3"}));
  EXPECT_TRUE(ChooseSpares(FourNodes(), {}, 0)->empty());
}

TEST(ChooseSpares, WhereNothingIsMeasuredThePromisedSpeedCounts) {
  Cluster cluster = FourNodes();
  for (Device& device : cluster.devices) device.product_flops = 2e13;
  cluster.devices[1].product_flops = 5e11;
  const auto spares = ChooseSpares(cluster, {}, 1);
  EXPECT_EQ(spares->at(0).why, "n2: its device is the slowest, 500 GFLOP/s");
}

TEST(ChooseSpares, SomeNodeMustBeLeft) {
  const auto none = ChooseSpares(FourNodes(), {}, 4);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().exit_code, ExitCode::kNoPlan);
  EXPECT_EQ(none.error().message, "spares=4 leaves none of 4 nodes to train; allowed: 0 to 3");
}

TEST(KeepAside, TheNodesStayAndTheirDevicesGo) {
  Cluster cluster = FourNodes();
  std::vector<SpareNode> spares = {{"n2", ""}, {"n4", ""}};
  KeepAside(spares, cluster);
  EXPECT_EQ(cluster.nodes.size(), 4u);
  ASSERT_EQ(cluster.devices.size(), 2u);
  EXPECT_EQ(cluster.devices[0].node, "n1");
  EXPECT_EQ(cluster.devices[1].node, "n3");
}

TEST(KeepAside, ASpareComesBackInTheNodesOrder) {
  Cluster cluster = FourNodes();
  std::vector<SpareNode> spares = {{"n2", ""}};
  KeepAside(spares, cluster);
  LeaveOut("n3", cluster);
  PutIn(spares[0], cluster);
  ASSERT_EQ(cluster.devices.size(), 3u);
  EXPECT_EQ(cluster.devices[0].node, "n1");
  EXPECT_EQ(cluster.devices[1].node, "n2");
  EXPECT_EQ(cluster.devices[2].node, "n4");
}

TEST(LeaveOut, NothingIsMeasuredOnALostNodeAndASparesPlaceStays) {
  Cluster cluster = FourNodes();
  std::vector<SpareNode> spares = {{"n4", ""}};
  KeepAside(spares, cluster);
  LeaveOut("n2", cluster);
  std::vector<std::string> left;
  for (const MeasuredNode& node : MeasuredNodes(cluster)) left.push_back(node.name);
  EXPECT_EQ(left, (std::vector<std::string>{"n1", "n3", "n4"}));
  EXPECT_EQ(cluster.devices.size(), 2u);
}

TEST(ReplaceLost, SparesComeInAsLongAsThereAreSome) {
  Cluster cluster = FourNodes();
  std::vector<SpareNode> spares = {{"n4", ""}};
  KeepAside(spares, cluster);
  EXPECT_EQ(ReplaceLost({"n1", "n3"}, cluster, spares), " without n1 (n4 takes its place), n3");
  EXPECT_TRUE(spares.empty());
  ASSERT_EQ(cluster.devices.size(), 2u);
  EXPECT_EQ(cluster.devices[0].node, "n2");
  EXPECT_EQ(cluster.devices[1].node, "n4");
  EXPECT_EQ(ReplaceLost({}, cluster, spares), "");
}

}  // namespace
}  // namespace adaptive_train::spares_test
