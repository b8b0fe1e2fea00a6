#include "runtime/train/all_reduce_ways.h"

#include <algorithm>
#include <cstdint>

namespace adaptive_train {
namespace {

constexpr const char* kRanks = "all_reduce_ranks";
constexpr const char* kDoubling = "all_reduce_doubling_bytes";
constexpr const char* kHalving = "all_reduce_halving_bytes";
constexpr const char* kNodes = "all_reduce_nodes";  // 0: one ring
constexpr double kMostBytes = 1e15;                 // a double holds it exactly

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

std::map<std::string, double> KeptWays(const AllReduceWays& ways, int members) {
  return {{kRanks, members},
          {kDoubling, std::min(static_cast<double>(ways.doubling_bytes), kMostBytes)},
          {kHalving, std::min(static_cast<double>(ways.halving_bytes), kMostBytes)},
          {kNodes, static_cast<double>(ways.nodes.size())}};
}

AllReduceWays WaysAfter(const std::map<std::string, double>& kept, const Plan& plan,
                        int rank) {
  const std::vector<int> members = GroupsOf(plan, rank).data;
  const auto number = [&](const char* name) {
    const auto at = kept.find(name);
    return at == kept.end() ? -1.0 : at->second;
  };
  AllReduceWays ways;
  const double doubling = number(kDoubling), halving = number(kHalving), nodes = number(kNodes);
  if (number(kRanks) != static_cast<double>(members.size()) || nodes < 0 ||
      !(doubling >= 0 && doubling <= kMostBytes) || !(halving >= 0 && halving <= kMostBytes))
    return WaysOf(plan, rank);
  ways.doubling_bytes = static_cast<std::int64_t>(doubling);
  ways.halving_bytes = static_cast<std::int64_t>(halving);
  if (nodes == 0) return ways;
  ways.nodes = EvenMembersByNode(plan, members);
  return static_cast<double>(ways.nodes.size()) == nodes ? ways : WaysOf(plan, rank);
}

}  // namespace adaptive_train
