// The ways of sums follow the plan, and after a checkpoint what was before it.
#include "runtime/train/all_reduce_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace adaptive_train::all_reduce_ways_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Four ranks on nodes of these names.
Plan PlanOn(const std::vector<std::string>& nodes) {
  Plan plan;
  plan.data = static_cast<int>(nodes.size());
  plan.stages.resize(1);
  plan.stages[0].all_reduce = {4096, 65536, false};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    RankPlan rank;
    rank.rank = rank.replica = static_cast<int>(i);
    rank.device.node = nodes[i];
    plan.ranks.push_back(rank);
  }
  return plan;
}

TEST(AllReduceWays, AreThePlans) {
  Plan plan = PlanOn({"b", "a", "b", "a"});
  EXPECT_EQ(WaysOf(plan, 0).doubling_bytes, 4096);
  EXPECT_EQ(WaysOf(plan, 0).halving_bytes, 65536);
  EXPECT_THAT(WaysOf(plan, 0).nodes, IsEmpty());
  plan.stages[0].all_reduce.node_first = true;
  EXPECT_THAT(WaysOf(plan, 0).nodes, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(AllReduceWays, StayAfterACheckpoint) {
  Plan before = PlanOn({"a", "a", "b", "b"}), after = before;
  before.stages[0].all_reduce = {1024, 0, true};
  const auto kept = KeptWays(before, {});
  const AllReduceWays ways = WaysAfter(kept, after, 0);
  EXPECT_EQ(ways.doubling_bytes, 1024);
  EXPECT_EQ(ways.halving_bytes, 0);
  EXPECT_THAT(ways.nodes, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

/// Two stages of two replicas each.
Plan StagedPlan() {
  Plan plan = PlanOn({"a", "b", "c", "d"});
  plan.data = 2;
  plan.stages.push_back({});
  for (RankPlan& rank : plan.ranks) {
    rank.stage = rank.rank / 2;
    rank.replica = rank.rank % 2;
  }
  return plan;
}

TEST(AllReduceWays, OfEveryStageStayAfterACheckpoint) {
  Plan before = StagedPlan();
  before.stages[0].all_reduce = {1, 2, false};
  before.stages[1].all_reduce = {3, 4, false};
  const auto kept = KeptWays(before, {});
  Plan after = StagedPlan();
  after.stages[0].all_reduce = after.stages[1].all_reduce = {5, 6, false};
  EXPECT_EQ(WaysAfter(kept, after, 1).doubling_bytes, 1);
  EXPECT_EQ(WaysAfter(kept, after, 2).doubling_bytes, 3);
  EXPECT_EQ(WaysAfter(kept, after, 3).halving_bytes, 4);
  EXPECT_EQ(KeptWays(after, kept), kept) << "what was taken up is kept on";
  Plan one = PlanOn({"a", "b"});  // as many members, other stages
  one.stages[0].all_reduce = {5, 6, false};
  EXPECT_EQ(WaysAfter(kept, one, 0).doubling_bytes, 5);
}

TEST(AllReduceWays, AreThePlansWhereTheCheckpointsDoNotFit) {
  Plan plan = PlanOn({"a", "a", "b", "b"});
  plan.stages[0].all_reduce.node_first = true;
  const auto kept = KeptWays(plan, {});
  const auto is_plans = [](const std::map<std::string, double>& numbers, const Plan& now) {
    const AllReduceWays ways = WaysAfter(numbers, now, 0), planned = WaysOf(now, 0);
    return ways.doubling_bytes == planned.doubling_bytes &&
           ways.halving_bytes == planned.halving_bytes && ways.nodes == planned.nodes;
  };
  Plan other = PlanOn({"a", "a", "b", "c"});  // not equally many
  other.stages[0].all_reduce = {1, 2, false};
  EXPECT_TRUE(is_plans(kept, other));
  EXPECT_TRUE(is_plans(kept, PlanOn({"a", "b", "c", "d"})));  // other nodes
  EXPECT_TRUE(is_plans(kept, PlanOn({"a", "b"})));            // other ranks
  EXPECT_TRUE(is_plans({}, plan));
  for (const auto& [name, value] : kept) {
    auto bad = kept;
    for (const double number : {-1.0, std::numeric_limits<double>::quiet_NaN(), 1e300}) {
      bad[name] = number;
      EXPECT_TRUE(is_plans(bad, other)) << name << ' ' << number;
    }
  }
}

}  // namespace
}  // namespace adaptive_train::all_reduce_ways_test
