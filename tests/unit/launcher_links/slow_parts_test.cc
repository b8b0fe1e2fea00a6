// Links and devices far slower than their kind are named, others are not.
#include <gtest/gtest.h>

#include "launcher/measure/profile_reuse.h"
#include "launcher/nodes/slow_parts.h"

namespace adaptive_train::slow_parts_test {
namespace {

Cluster ClusterOfCards(const std::vector<std::int64_t>& gigabits) {
  Cluster cluster;
  for (std::size_t i = 0; i < gigabits.size(); ++i) {
    Node& node = cluster.nodes.emplace_back();
    node.name = "n" + std::to_string(i);
    Nic& nic = node.nics.emplace_back();
    nic.state = "up";
    nic.bits_per_second = gigabits[i] * 1'000'000'000;
  }
  return cluster;
}

/// All links of the cluster at 1e9, except those from and to `slow` at 1e8.
Profile Links(const Cluster& cluster, const std::string& slow_from, const std::string& slow_to) {
  Profile profile;
  for (const Node& from : cluster.nodes) {
    for (const Node& to : cluster.nodes) {
      if (from.name == to.name) continue;
      const bool slow = slow_to.empty() ? from.name == slow_from || to.name == slow_from
                                        : from.name == slow_from && to.name == slow_to;
      profile.links.push_back({from.name, to.name, 1e-4, slow ? 1e8 : 1e9, {1, 0, 1}});
    }
  }
  return profile;
}

TEST(FindSlowParts, EvenLinksAreNotNamed) {
  const Cluster cluster = ClusterOfCards({10, 10, 10, 10});
  EXPECT_TRUE(FindSlowParts(cluster, {}, Links(cluster, "none", "")).empty());
}

TEST(FindSlowParts, OneSlowLinkIsNamedWithBothFigures) {
  const Cluster cluster = ClusterOfCards({10, 10, 10, 10});
  const auto slow = FindSlowParts(cluster, {}, Links(cluster, "n1", "n2"));
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].node, "n1");
  EXPECT_EQ(slow[0].peer, "n2");
  EXPECT_EQ(slow[0].line, "link n1 to n2: 800 Mbit/s, others of its kind 8.00 Gbit/s");
}

TEST(FindSlowParts, ANodeWhoseLinksAreAllSlowIsNamedOnce) {
  const Cluster cluster = ClusterOfCards({10, 10, 10, 10, 10});
  const auto slow = FindSlowParts(cluster, {}, Links(cluster, "n3", ""));
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].node, "n3");
  EXPECT_EQ(slow[0].peer, "");
}

TEST(FindSlowParts, AKnownHistoryCountsAndTheKindOfCardToo) {
  const Cluster cluster = ClusterOfCards({10, 10, 10, 1, 1});
  const Profile stored = Links(cluster, "none", "");
  Profile measured;
  measured.links = {{"n0", "n1", 1e-4, 1e8, {1, 0, 1}}, {"n2", "n1", 1e-4, 0.9e9, {1, 0, 1}}};
  const auto slow = FindSlowParts(cluster, stored, measured);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].node, "n0");
  // Slow cards: their links are a separate kind.
  Profile mixed = Links(cluster, "none", "");
  for (LinkMeasurement& link : mixed.links) {
    if (std::string("n3n4").find(link.from) != std::string::npos ||
        std::string("n3n4").find(link.to) != std::string::npos)
      link.bytes_per_second = 1e8;
  }
  EXPECT_TRUE(FindSlowParts(cluster, {}, mixed).empty());
}

TEST(FindSlowParts, ADeviceNeedsThreeOthersOfItsKind) {
  Profile measured;
  for (int i = 0; i < 3; ++i)
    measured.devices.push_back(
        {"n" + std::to_string(i), "cpu", i == 0 ? 40e9 : 100e9, 1e9, {1, 0, 1}});
  EXPECT_TRUE(FindSlowParts({}, {}, measured).empty());
  Profile stored;
  stored.devices = {{"n7", "cpu", 100e9, 1e9, {1, 0, 1}}, {"n8", "gpu", 9e12, 1e9, {1, 0, 1}}};
  const auto slow = FindSlowParts({}, stored, measured);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].node, "n0");
  EXPECT_EQ(slow[0].line, "n0: its device gives 40 GFLOP/s, others of its kind (cpu) 100");
}

}  // namespace
}  // namespace adaptive_train::slow_parts_test
