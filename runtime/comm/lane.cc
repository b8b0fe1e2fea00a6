#include "runtime/comm/lane.h"

#include <algorithm>
#include <cassert>

namespace adaptive_train {
namespace {

constexpr std::uint64_t kPointToPoint = std::uint64_t{1} << 63;
constexpr std::uint64_t kSequences = std::uint64_t{1} << 36;

std::uint64_t CommonTag(GroupKind group, Purpose purpose) {
  return static_cast<std::uint64_t>(purpose) << 59 | static_cast<std::uint64_t>(group) << 52;
}

}  // namespace

const char* NameOf(Purpose purpose) {
  constexpr const char* kNames[] = {"gradients", "parameters", "activations", "statistics",
                                    "state"};
  return kNames[static_cast<std::size_t>(purpose)];
}

std::uint64_t CollectiveTag(GroupKind group, Purpose purpose, std::uint64_t sequence) {
  return CommonTag(group, purpose) | (sequence % kSequences) << 16;
}

std::uint64_t PointToPointTag(GroupKind group, Purpose purpose, int source,
                              std::uint64_t sequence) {
  return kPointToPoint | CommonTag(group, purpose) | static_cast<std::uint64_t>(source) << 36 |
         sequence % kSequences;
}

CollectiveLane CollectiveLane::Among(const std::vector<int>& members) const {
  const int own_number = some == nullptr ? rank : (*some)[static_cast<std::size_t>(rank)];
  const auto own = std::ranges::find(members, own_number);
  assert(own != members.end());
  CollectiveLane lane = *this;
  lane.rank = static_cast<int>(own - members.begin());
  lane.size = static_cast<int>(members.size());
  lane.some = &members;
  return lane;
}

}  // namespace adaptive_train
