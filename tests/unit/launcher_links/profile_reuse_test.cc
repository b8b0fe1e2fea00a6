// Which stored links are reused and which are checked, and the consequences of a failed check.
#include "launcher/measure/profile_reuse.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "core/device_kind.h"

namespace adaptive_train::profile_reuse_test {
namespace {

constexpr double kNow = 2e9;

std::vector<MeasuredNode> Nodes(int count) {
  std::vector<MeasuredNode> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back({"n" + std::to_string(i), "cpu", 1});
  return nodes;
}

Evidence Fresh() { return {1, 0.02, kNow}; }

/// Everything of `nodes`, as just measured by one job.
Profile Full(const std::vector<MeasuredNode>& nodes) {
  Profile profile;
  for (const MeasuredNode& from : nodes) {
    for (const MeasuredNode& to : nodes)
      profile.links.push_back({from.name, to.name, 1e-4, 1e8, Fresh()});
    profile.devices.push_back({from.name, from.device_kind, 1e11, 1e10, Fresh()});
  }
  return profile;
}

LinkMeasurement& LinkOf(Profile& profile, const std::string& from, const std::string& to) {
  for (LinkMeasurement& link : profile.links) {
    if (link.from == from && link.to == to) return link;
  }
  throw std::runtime_error("no such link");
}

TEST(PlanReuse, WithoutAnythingStoredAllIsMeasured) {
  const ReusePlan plan = PlanReuse({}, Nodes(5), kNow, true, 0);
  EXPECT_EQ(plan.missing.size(), 10u);
  EXPECT_TRUE(plan.check.empty());
  EXPECT_EQ(plan.devices, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(PlanReuse, WhatIsFreshIsCheckedInOneRoundThatTurns) {
  const auto nodes = Nodes(8);
  std::set<RankPair> checked;
  for (int turn = 0; turn < 7; ++turn) {
    const ReusePlan plan = PlanReuse(Full(nodes), nodes, kNow, true, turn);
    EXPECT_TRUE(plan.missing.empty());
    EXPECT_TRUE(plan.devices.empty());
    EXPECT_EQ(plan.check_devices.size(), 8u) << "each checks its own";
    EXPECT_EQ(plan.check.size(), 4u);
    checked.insert(plan.check.begin(), plan.check.end());
  }
  EXPECT_EQ(checked.size(), 28u);
}

TEST(Usable, WhatUsersDisputeIsAsIfItWereNotStored) {
  Profile told = Full(Nodes(4));
  LinkOf(told, "n2", "n1").evidence.trust = Trust::kDisputed;
  told.devices[3].evidence.trust = Trust::kDisputed;
  const ReusePlan plan = PlanReuse(Usable(told, {}, SpotCheck::kYes), Nodes(4), kNow, true, 0);
  EXPECT_EQ(plan.missing, (std::vector<RankPair>{{1, 2}}));
  EXPECT_EQ(plan.devices, std::vector<int>{3});
}

TEST(Usable, ACardLimitsWhatOthersSayOfALinkBetweenNodes) {
  Cluster cluster;
  cluster.nodes.resize(3);
  const auto card = [](const char* state, std::optional<std::int64_t> speed) {
    return Nic{"eth", "ethernet", state, speed, "", ""};
  };
  cluster.nodes[0].name = "n0", cluster.nodes[0].nics = {card("up", 400), card("up", 800)};
  cluster.nodes[1].name = "n1", cluster.nodes[1].nics = {card("up", 400), card("down", 1 << 20)};
  cluster.nodes[2].name = "n2", cluster.nodes[2].nics = {card("up", std::nullopt)};
  Profile stored = Full(Nodes(3));
  for (LinkMeasurement& link : stored.links) link.evidence.trust = Trust::kUnconfirmed;
  LinkOf(stored, "n1", "n0").evidence.trust = Trust::kKnown;
  Profile within = Usable(stored, cluster, SpotCheck::kYes);
  EXPECT_EQ(LinkOf(within, "n0", "n1").bytes_per_second, 50);
  EXPECT_EQ(LinkOf(within, "n0", "n2").bytes_per_second, 100);
  EXPECT_EQ(LinkOf(within, "n1", "n0").bytes_per_second, 1e8) << "one's own figure";
  EXPECT_EQ(LinkOf(within, "n0", "n0").bytes_per_second, 1e8) << "no card is in between";
}

TEST(Usable, WhatNobodyWillCheckIsNotUsedUnlessItIsKnown) {
  Profile told = Full(Nodes(3));
  LinkOf(told, "n2", "n1").evidence.trust = Trust::kUnconfirmed;
  told.devices[1].evidence.trust = Trust::kUnconfirmed;
  const Profile used = Usable(told, {}, SpotCheck::kNo);
  EXPECT_EQ(used.links.size(), told.links.size() - 1);
  EXPECT_EQ(used.devices.size(), 2u);
  EXPECT_EQ(Usable(told, {}, SpotCheck::kYes).links.size(), told.links.size());
  Cluster cluster;
  cluster.nodes.resize(2);
  EXPECT_EQ(SpotCheckOf({}, cluster), SpotCheck::kYes);
  ProfileConfig unmeasured;
  unmeasured.measure = false;
  EXPECT_EQ(SpotCheckOf(unmeasured, cluster), SpotCheck::kNo);
  cluster.nodes.resize(1);
  EXPECT_EQ(SpotCheckOf({}, cluster), SpotCheck::kNo) << "one node measures nothing";
}

TEST(Usable, NoProcessorIsFasterThanItsInstructionSetAllows) {
  const auto told = [](const std::string& isa, int cores, Trust trust) {
    Cluster cluster;
    cluster.nodes.resize(1);
    cluster.nodes[0].name = "n0";
    cluster.nodes[0].processors.isa = isa;
    cluster.nodes[0].processors.cores = cores;
    cluster.devices = {{.node = "n0", .kind = "cpu", .model = "x", .threads = 4}};
    Profile profile;
    profile.devices = {{"n0", DeviceKindName(cluster.devices[0]), 1e18, 1e9, Fresh()}};
    profile.devices[0].evidence.trust = trust;
    return Usable(profile, cluster, SpotCheck::kYes).devices[0].product_flops;
  };
  EXPECT_EQ(told("avx2", 4, Trust::kUnconfirmed), 4 * 32 * 6.5e9);
  EXPECT_EQ(told("avx512_bf16", 2, Trust::kUnconfirmed), 2 * 64 * 6.5e9) << "two threads a core";
  EXPECT_EQ(told("avx2", 4, Trust::kKnown), 1e18) << "three users have measured it";
  EXPECT_EQ(told("none", 4, Trust::kUnconfirmed), 1e18);
}

TEST(WithMeasured, OnesOwnFigureTakesThePlaceOfWhatOthersSayAlone) {
  Profile told = Full(Nodes(1)), fresh = Full(Nodes(1));
  fresh.links[0].bytes_per_second = 1.1e8;
  fresh.devices[0].product_flops = 1.1e11;
  EXPECT_NEAR(WithMeasured(told, fresh).links[0].bytes_per_second, 1.05e8, 1);
  told.links[0].evidence.trust = told.devices[0].evidence.trust = Trust::kUnconfirmed;
  EXPECT_EQ(WithMeasured(told, fresh).links[0], fresh.links[0]);
  EXPECT_EQ(WithMeasured(told, fresh).devices[0], fresh.devices[0]);
}

TEST(PlanReuse, NeverMeasuresAll) {
  const ReusePlan plan = PlanReuse(Full(Nodes(4)), Nodes(4), kNow, false, 0);
  EXPECT_EQ(plan.missing.size(), 6u);
  EXPECT_EQ(plan.devices.size(), 4u);
}

TEST(PlanReuse, OneStaleDirectionOrANewNodeIsMeasured) {
  Profile stored = Full(Nodes(3));
  LinkOf(stored, "n2", "n1").evidence.measured_at = kNow - 3 * kConfidenceHalfLife;
  const ReusePlan plan = PlanReuse(stored, Nodes(4), kNow, true, 0);
  const std::set<RankPair> missing(plan.missing.begin(), plan.missing.end());
  EXPECT_EQ(missing, (std::set<RankPair>{{0, 3}, {1, 2}, {1, 3}, {2, 3}}));
  EXPECT_EQ(plan.devices, std::vector<int>{3}) << "the new node has none";
  EXPECT_EQ(plan.check_devices, (std::vector<int>{0, 1, 2}));
}

TEST(PlanReuse, AnotherKindOfDeviceIsMeasured) {
  auto nodes = Nodes(3);
  const Profile stored = Full(nodes);
  nodes[1].device_kind = "cpu, 0.50 CPUs";
  const ReusePlan plan = PlanReuse(stored, nodes, kNow, true, 0);
  EXPECT_TRUE(plan.missing.empty());
  EXPECT_EQ(plan.devices, std::vector<int>{1});
}

TEST(ChangedNodes, AreThoseWhoseCheckedLinkContradictsTheStore) {
  const auto nodes = Nodes(4);
  const Profile stored = Full(nodes);
  Profile checked;
  checked.links = {{"n0", "n1", 1e-4, 1.1e8, Fresh()},
                   {"n1", "n0", 1e-4, 0.9e8, Fresh()},
                   {"n2", "n3", 1e-4, 1.0e8, Fresh()},
                   {"n3", "n2", 1e-4, 0.8e8, Fresh()}};
  EXPECT_EQ(ChangedNodes(stored, checked, nodes), (std::vector<int>{2, 3}));
  EXPECT_EQ(PairsOf({2, 3}, 4, {{0, 1}, {2, 3}}),
            (std::vector<RankPair>{{0, 2}, {0, 3}, {1, 2}, {1, 3}}));
}

TEST(DoubtfulDevices, AreAllOfAKindThatDoNotAgree) {
  auto nodes = Nodes(4);
  nodes[3].device_kind = "another";
  const Profile stored = Full(nodes);
  EXPECT_EQ(DoubtfulDevices(stored, stored, nodes), std::vector<int>{});
  const std::vector<int> kind = {0, 1, 2};
  // One device that differs from the store, like the others of its kind.
  Profile measured = stored;
  measured.devices[1].product_flops = 0.5e11;
  EXPECT_EQ(DoubtfulDevices(stored, measured, nodes), kind);
  EXPECT_EQ(DoubtfulDevices({}, measured, nodes), kind);
  // All alike, but different from the store: nodes of a kind may have changed together.
  for (int i : kind) measured.devices[static_cast<std::size_t>(i)].product_flops = 0.5e11;
  EXPECT_EQ(DoubtfulDevices(stored, measured, nodes), kind);
  EXPECT_EQ(DoubtfulDevices({}, measured, nodes), std::vector<int>{});
  // One that varies during measurement.
  measured = stored;
  measured.devices[3].evidence.spread = 0.3;
  EXPECT_EQ(DoubtfulDevices(stored, measured, nodes), std::vector<int>{3});
}

TEST(BothLooks, OfADeviceBothCountHoweverFarApart) {
  Profile first, second;
  first.devices = {{"a", "cpu", 12, 1, Fresh()}, {"b", "cpu", 5, 1, Fresh()}};
  second.devices = {{"a", "cpu", 4, 1, Fresh()}};
  const Profile both = BothLooks(first, second);
  ASSERT_EQ(both.devices.size(), 2u);
  EXPECT_DOUBLE_EQ(both.devices[0].product_flops, 8);
  EXPECT_EQ(both.devices[0].evidence.count, 2);
  EXPECT_GT(both.devices[0].evidence.spread, 0.5);
  EXPECT_EQ(both.devices[1].evidence.count, 1);
}

TEST(WithMeasured, MergesWhatIsKnownAndAddsWhatIsNew) {
  Profile known;
  known.links = {{"a", "b", 1e-4, 100, Fresh()}, {"b", "a", 1e-4, 100, Fresh()}};
  known.nodes = {{"a", 2}};
  Profile fresh;
  fresh.links = {
      {"a", "b", 1e-4, 104, Fresh()}, {"b", "a", 1e-4, 50, Fresh()}, {"a", "c", 1e-4, 70, Fresh()}};
  fresh.devices = {{"a", "cpu", 1, 1, Fresh()}};
  const Profile both = WithMeasured(known, fresh);
  ASSERT_EQ(both.links.size(), 3u);
  EXPECT_DOUBLE_EQ(both.links[0].bytes_per_second, 102);
  EXPECT_DOUBLE_EQ(both.links[1].bytes_per_second, 50);
  EXPECT_DOUBLE_EQ(both.links[2].bytes_per_second, 70);
  EXPECT_EQ(both.devices.size(), 1u);
  EXPECT_EQ(both.nodes.size(), 1u);
}

}  // namespace
}  // namespace adaptive_train::profile_reuse_test
