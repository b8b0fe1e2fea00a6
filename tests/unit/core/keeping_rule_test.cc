// No single node has the only copy of anything, and nothing is sent that another node has anyway.
#include "core/keeping_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace adaptive_train::keeping_rule_test {
namespace {

/// Ranks in the order of (stage, replica, tensor rank); node i has the ranks that `nodes` names.
Plan PlanOf(int pipeline, int data, int tensor, int shard, const std::vector<std::string>& nodes) {
  Plan plan;
  plan.data = data;
  plan.tensor = tensor;
  plan.shard = shard;
  plan.stages.resize(static_cast<std::size_t>(pipeline));
  for (int rank = 0; rank < pipeline * data * tensor; ++rank) {
    RankPlan& own = plan.ranks.emplace_back();
    own.rank = rank;
    own.stage = rank / (data * tensor);
    own.replica = rank / tensor % data;
    own.tensor_rank = rank % tensor;
    own.device.node = nodes[static_cast<std::size_t>(rank)];
  }
  return plan;
}

std::string NodeOf(const Plan& plan, int rank) {
  return plan.ranks[static_cast<std::size_t>(rank)].device.node;
}

/// The sets of places of an arena's state that are whole without `lost`.
int WholeWithout(const Plan& plan, int arena, const std::string& lost) {
  const auto parts = KeptPartsOf(plan);
  std::map<int, std::set<std::int64_t>> places;
  std::map<int, std::int64_t> wanted;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const KeptPart& part = parts[rank].state;
    if (part.arena_of != arena) continue;
    wanted[part.cover] = part.places;
    const bool here = NodeOf(plan, static_cast<int>(rank)) != lost;
    const bool there = part.buddy != kNoBuddy && NodeOf(plan, part.buddy) != lost;
    if (here || there) places[part.cover].insert(part.place);
  }
  int whole = 0;
  for (const auto& [cover, count] : wanted)
    whole += static_cast<std::int64_t>(places[cover].size()) == count ? 1 : 0;
  return whole;
}

TEST(KeepingRule, ReplicasOnSeveralNodesSendNothingAndEachNodeHasItAll) {
  const Plan plan = PlanOf(1, 4, 1, 0, {"n1", "n1", "n1", "n2"});
  const auto parts = KeptPartsOf(plan);
  for (const KeptParts& part : parts) EXPECT_EQ(part.state.buddy, kNoBuddy);
  EXPECT_EQ(parts[1].state.place, 1);
  EXPECT_EQ(parts[1].state.places, 3);
  EXPECT_EQ(parts[3].state.cover, 1);
  EXPECT_EQ(parts[3].state.places, 1);
  // Residuals are each rank's own.
  EXPECT_EQ(NodeOf(plan, parts[0].residuals.buddy), "n2");
  EXPECT_EQ(NodeOf(plan, parts[3].residuals.buddy), "n1");
  EXPECT_EQ(parts[3].residuals.places, 4);
}

TEST(KeepingRule, WhatOneNodeHasAloneIsOnASecondOne) {
  for (const Plan& plan :
       {PlanOf(1, 4, 1, 1, {"n1", "n2", "n3", "n4"}), PlanOf(1, 4, 1, 2, {"n1", "n1", "n1", "n2"}),
        PlanOf(2, 2, 1, 0, {"n1", "n1", "n2", "n2"}), PlanOf(2, 2, 1, 1, {"n1", "n2", "n2", "n1"}),
        PlanOf(4, 1, 1, 0, {"n1", "n2", "n3", "n4"}), PlanOf(1, 2, 2, 0, {"n1", "n1", "n2", "n2"}),
        PlanOf(1, 1, 2, 0, {"n1", "n1"})}) {
    std::set<std::string> nodes;
    for (const RankPlan& rank : plan.ranks) nodes.insert(rank.device.node);
    if (nodes.size() == 1) continue;
    for (const KeptParts& parts : KeptPartsOf(plan))
      for (const std::string& lost : nodes)
        EXPECT_GE(WholeWithout(plan, parts.state.arena_of, lost), 1) << lost;
  }
}

TEST(KeepingRule, ASingleNodeHasNoBuddies) {
  for (const KeptParts& parts : KeptPartsOf(PlanOf(1, 2, 2, 1, {"n1", "n1", "n1", "n1"}))) {
    EXPECT_EQ(parts.state.buddy, kNoBuddy);
    EXPECT_EQ(parts.residuals.buddy, kNoBuddy);
  }
}

/// One rank on each node; node i is behind `switches[i]`, "" is unknown.
Plan Behind(const std::vector<std::string>& switches) {
  const int nodes = static_cast<int>(switches.size());
  std::vector<std::string> names;
  for (int node = 0; node < nodes; ++node) names.push_back("n" + std::to_string(node));
  Plan plan = PlanOf(1, nodes, 1, 1, names);
  for (std::size_t node = 0; node < switches.size(); ++node)
    if (!switches[node].empty()) plan.ranks[node].switches = {"top", switches[node]};
  return plan;
}

TEST(KeepingRule, BuddiesAreOnAnotherSwitchAsFarAsThereAreOthers) {
  struct Case {
    std::vector<std::string> switches;
    int on_the_same;
  };
  for (const Case& one :
       {Case{{"a", "b", "a", "b"}, 0}, Case{{"a", "a", "b", "b", "c"}, 0},
        Case{{"c", "b", "b", "a", "b", "a", "c"}, 0}, Case{{"b", "a", "a", "a"}, 2},
        Case{{"a", "b", "b", "b", "a"}, 1}, Case{{"", "a", "", "a"}, 0}, Case{{"a", "a", "a"}, 3},
        Case{{"", "", "", ""}, 4}}) {
    const Plan plan = Behind(one.switches);
    const auto parts = KeptPartsOf(plan);
    std::set<int> buddies;
    int on_the_same = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const int buddy = parts[rank].state.buddy;
      buddies.insert(buddy);
      EXPECT_NE(buddy, static_cast<int>(rank));
      const auto node = static_cast<std::size_t>(buddy);
      on_the_same += one.switches[node] == one.switches[rank] ? 1 : 0;
    }
    EXPECT_EQ(on_the_same, one.on_the_same) << testing::PrintToString(one.switches);
    EXPECT_EQ(buddies.size(), parts.size()) << "one for each";
  }
}

TEST(KeepingRule, BuddiesAreSpreadEvenly) {
  const Plan plan = PlanOf(1, 8, 1, 1, {"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"});
  std::vector<int> times(8, 0);
  const auto parts = KeptPartsOf(plan);
  for (int rank = 0; rank < 8; ++rank) {
    const int buddy = parts[static_cast<std::size_t>(rank)].state.buddy;
    ++times[static_cast<std::size_t>(buddy)];
    EXPECT_NE(NodeOf(plan, buddy), NodeOf(plan, rank));
  }
  EXPECT_THAT(times, testing::Each(1));
}

}  // namespace
}  // namespace adaptive_train::keeping_rule_test
