// Which ranks may be in one communicator of NCCL, and who joins several of them.
#pragma once

#include <vector>

#include "core/plan.h"

namespace adaptive_train {

/// How the members of a group reach each other. Every member is in exactly one of `alike` and
/// `alone`; the order is that of the members.
struct LikeGroups {
  /// Ranks that NCCL may join: two or more each, GPUs of one model, the same version of NCCL, and no
  /// GPU twice. Unlike ones in a ring hang (NVIDIA/nccl#794), and versions must match.
  std::vector<std::vector<int>> alike;
  std::vector<int> alone;  // CPUs, GPUs without their like, GPUs of which no version is known
  /// The first rank of each of `alike`, and those of `alone`: between them goes UCX. Empty if there
  /// would be one only.
  std::vector<int> joined_by_ucx;
};

/// Derived from the plan alone, in the same way on all ranks. `members` are distinct ranks of it.
LikeGroups LikeGroupsOf(const Plan& plan, const std::vector<int>& members);

}  // namespace adaptive_train
