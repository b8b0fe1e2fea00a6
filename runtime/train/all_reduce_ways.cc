#include "runtime/train/all_reduce_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace adaptive_train {
namespace {

constexpr const char* kStages = "all_reduce_stages";  // not there: one
constexpr const char* kRanks = "all_reduce_ranks";
constexpr const char* kDoubling = "all_reduce_doubling_bytes";
constexpr const char* kHalving = "all_reduce_halving_bytes";
constexpr const char* kNodes = "all_reduce_nodes";  // 0: one ring
constexpr double kMostBytes = 1e15;                 // a double holds it exactly

/// The first stage has the names that runs without stages give.
std::string NameIn(int stage, const char* name) {
  return stage == 0 ? name : fmt::format("{}_stage_{}", name, stage);
}

double NumberAt(const std::map<std::string, double>& kept, const std::string& name,
                double otherwise) {
  const auto at = kept.find(name);
  return at == kept.end() ? otherwise : at->second;
}

}  // namespace

AllReduceWays WaysOf(const Plan& plan, int rank) {
  const auto stage = static_cast<std::size_t>(plan.ranks[static_cast<std::size_t>(rank)].stage);
  const AllReducePlan& planned = plan.stages[stage].all_reduce;
  AllReduceWays ways;
  ways.doubling_bytes = planned.doubling_bytes;
  ways.halving_bytes = planned.halving_bytes;
  if (planned.node_first) ways.nodes = MembersByNode(plan, GroupsOf(plan, rank).data);
  return ways;
}

std::map<std::string, double> KeptWays(const Plan& plan,
                                       const std::map<std::string, double>& before) {
  std::map<std::string, double> kept{{kStages, plan.Pipeline()}};
  for (const RankPlan& rank : plan.ranks) {
    if (rank.replica > 0 || rank.tensor_rank > 0) continue;
    const AllReduceWays ways = WaysAfter(before, plan, rank.rank);
    const auto keep = [&](const char* name, double value) {
      kept[NameIn(rank.stage, name)] = value;
    };
    keep(kRanks, plan.data);
    keep(kDoubling, std::min(static_cast<double>(ways.doubling_bytes), kMostBytes));
    keep(kHalving, std::min(static_cast<double>(ways.halving_bytes), kMostBytes));
    keep(kNodes, static_cast<double>(ways.nodes.size()));
  }
  return kept;
}

AllReduceWays WaysAfter(const std::map<std::string, double>& kept, const Plan& plan, int rank) {
  const std::vector<int> members = GroupsOf(plan, rank).data;
  const int stage = plan.ranks[static_cast<std::size_t>(rank)].stage;
  const auto number = [&](const char* name) { return NumberAt(kept, NameIn(stage, name), -1); };
  AllReduceWays ways;
  const double doubling = number(kDoubling), halving = number(kHalving), nodes = number(kNodes);
  if (NumberAt(kept, kStages, 1) != plan.Pipeline() ||
      number(kRanks) != static_cast<double>(members.size()) || nodes < 0 ||
      !(doubling >= 0 && doubling <= kMostBytes) || !(halving >= 0 && halving <= kMostBytes))
    return WaysOf(plan, rank);
  ways.doubling_bytes = static_cast<std::int64_t>(doubling);
  ways.halving_bytes = static_cast<std::int64_t>(halving);
  if (nodes == 0) return ways;
  ways.nodes = EvenMembersByNode(plan, members);
  return static_cast<double>(ways.nodes.size()) == nodes ? ways : WaysOf(plan, rank);
}

}  // namespace adaptive_train
