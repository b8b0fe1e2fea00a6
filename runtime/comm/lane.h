// What keeps the messages of one operation apart from all others: purposes, tags and lanes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace adaptive_train {

class Transport;

/// Each purpose has its own tags, so that no message is taken for another, and its own byte count.
enum class Purpose : std::uint8_t { kGradient, kParameter, kActivation, kStatistic };
inline constexpr std::size_t kPurposes = 4;
/// "gradients" and the like.
const char* NameOf(Purpose purpose);

/// Whom a rank shares something with. A rank is in at most one group of each kind.
enum class GroupKind : std::uint8_t { kWorld, kData, kTensor, kPipeline, kEmbeddingHead };

// A tag, from its highest bit: point-to-point (1), foreign (1), purpose (2), kind of group (8); then
// of a collective its sequence number (36) and what the operation numbers by itself (16), of a
// point-to-point message its source's number in the group (16) and a sequence number (36). Groups of
// one kind have no rank in common, so they may share tags.

/// Tags from here to twice this belong to no purpose and no group: for operations between some
/// ranks only, which choose their tags by themselves.
inline constexpr std::uint64_t kForeignTags = std::uint64_t{1} << 62;

std::uint64_t CollectiveTag(GroupKind group, Purpose purpose, std::uint64_t sequence);
std::uint64_t PointToPointTag(GroupKind group, Purpose purpose, int source, std::uint64_t sequence);

/// One collective as an operation sees it: who takes part, and tags that no other one has. Members
/// are numbered within the lane.
struct CollectiveLane {
  Transport* transport = nullptr;
  int rank = 0;  // this rank's number among the members
  int size = 1;
  std::uint64_t tag = 0;                      // the low 16 bits are the operation's own
  std::atomic<std::int64_t>* sent = nullptr;  // payload bytes of the purpose, counted up
  std::uint64_t sequence = 0;                 // the group's collectives of the purpose before it
  const std::vector<int>* group = nullptr;    // ranks of the job, by number in the group
  const std::vector<int>* some = nullptr;     // numbers in the group; nullptr: all, in order

  /// The rank of the job that a member is.
  int RankOf(std::size_t member) const {
    return (*group)[some == nullptr ? member : static_cast<std::size_t>((*some)[member])];
  }
  /// The same lane among some members of the group only, this rank one of them. Lanes among
  /// disjoint members do not disturb each other. `members` are numbers in the group and must outlive
  /// the operation.
  CollectiveLane Among(const std::vector<int>& members) const;
};

}  // namespace adaptive_train
