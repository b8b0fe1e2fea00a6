// Purposes, tags and lanes, which keep the messages of one operation apart from all others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace adaptive_train {

class Transport;

/// Each purpose has its own tags, so that messages cannot be confused, and its own byte count.
enum class Purpose : std::uint8_t { kGradient, kParameter, kActivation, kStatistic, kState };
inline constexpr std::size_t kPurposes = 5;
/// "gradients" and so on.
const char* NameOf(Purpose purpose);

/// The kind of a group. A rank is in at most one group of each kind.
enum class GroupKind : std::uint8_t { kWorld, kData, kTensor, kPipeline, kEmbeddingHead };

// A tag has, from its highest bit: point-to-point (1), foreign (1), purpose (3), kind of group (7).
// A collective adds its sequence number (36) and the operation's own numbering (16). A
// point-to-point message adds its source's number in the group (16) and a sequence number (36).
// Groups of one kind have no rank in common, so they may share tags.

/// Tags from here to twice this belong to no purpose or group. They serve operations between some
/// ranks only, which choose their tags themselves.
inline constexpr std::uint64_t kForeignTags = std::uint64_t{1} << 62;

std::uint64_t CollectiveTag(GroupKind group, Purpose purpose, std::uint64_t sequence);
std::uint64_t PointToPointTag(GroupKind group, Purpose purpose, int source, std::uint64_t sequence);

/// One collective as an operation sees it: its members, and tags that no other one uses. Members
/// are numbered within the lane.
struct CollectiveLane {
  Transport* transport = nullptr;
  int rank = 0;  // this rank's number among the members
  int size = 1;
  std::uint64_t tag = 0;                      // the operation numbers the low 16 bits
  std::atomic<std::int64_t>* sent = nullptr;  // payload byte counter of the purpose
  std::uint64_t sequence = 0;                 // the group's earlier collectives of the purpose
  const std::vector<int>* group = nullptr;    // ranks of the job, by number in the group
  const std::vector<int>* some = nullptr;     // numbers in the group; nullptr: all, in order

  /// A member's rank in the job.
  int RankOf(std::size_t member) const {
    return (*group)[some == nullptr ? member : static_cast<std::size_t>((*some)[member])];
  }
  /// The same lane among some of the group's members, including this rank. Lanes among disjoint
  /// members do not interfere. `members` are numbers in the group and must outlive the operation.
  CollectiveLane Among(const std::vector<int>& members) const;
};

}  // namespace adaptive_train
