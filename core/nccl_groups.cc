#include "core/nccl_groups.h"

#include <algorithm>
#include <utility>

namespace adaptive_train {
namespace {

/// Both may be in one communicator, as far as they are different GPUs.
bool Alike(const Device& a, const Device& b) {
  return a.kind == "cuda" && b.kind == "cuda" && !a.model.empty() && a.model == b.model &&
         !a.nccl.empty() && a.nccl == b.nccl;
}

bool IsSameGpu(const Device& a, const Device& b) {
  return a.node == b.node && (a.index == b.index || (!a.uuid.empty() && a.uuid == b.uuid));
}

}  // namespace

LikeGroups LikeGroupsOf(const Plan& plan, const std::vector<int>& members) {
  const auto device = [&plan](int rank) -> const Device& {
    return plan.ranks[static_cast<std::size_t>(rank)].device;
  };
  std::vector<std::vector<int>> groups;
  for (const int rank : members) {
    const auto fits = [&](const std::vector<int>& group) {
      return Alike(device(group.front()), device(rank)) &&
             std::ranges::none_of(
                 group, [&](int other) { return IsSameGpu(device(other), device(rank)); });
    };
    const auto found = std::ranges::find_if(groups, fits);
    found == groups.end() ? groups.push_back({rank}) : found->push_back(rank);
  }
  LikeGroups like;
  for (std::vector<int>& group : groups) {
    like.joined_by_ucx.push_back(group.front());
    if (group.size() == 1)
      like.alone.push_back(group.front());
    else
      like.alike.push_back(std::move(group));
  }
  if (like.joined_by_ucx.size() == 1) like.joined_by_ucx.clear();
  return like;
}

}  // namespace adaptive_train
