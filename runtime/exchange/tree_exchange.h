// Sums one bucket over ranks by the tree over the step's units (core/unit_tree.h): the same bits
// whichever rank has which units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/unit_tree.h"
#include "runtime/comm/message_operation.h"
#include "runtime/model/bucket_rule.h"

namespace adaptive_train {

/// What a rank holds of one tree, of elements [begin, end) of the arena.
struct UnitTree {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<float*> nodes;  // the sums of NodesOf its units: end - begin elements each
};

/// The trees of a group's gradients. A value; what it points to belongs to the caller.
struct UnitTrees {
  std::int64_t units = 0;         // of a step
  std::vector<UnitRange> shares;  // [members of the group], which together are all units
  /// An element's gradient is the sum of the trees that have it, in this order. All members have the
  /// same trees.
  std::vector<UnitTree> trees;
};

/// One rank's part in the exchange of one bucket.
struct TreeExchangeOrder {
  std::int64_t units = 0;
  std::vector<UnitRange> shares;           // [members of the lane]
  std::vector<ElementRange> chunks;        // [members], of the bucket: what each owns
  std::vector<std::vector<float*>> trees;  // [trees][own nodes], from the bucket's begin on
  bool gather = true;                      // false: only the own chunk of `result` is written
  std::span<float> result;                 // the bucket; may be one of the nodes
};

/// Each rank sends each owner the owner's chunk of all its nodes, in one message. The owner adds
/// them as the tree says, then the trees, and with `gather` sends the sums to all. Shares that are
/// whole nodes cost the bytes of a reduce-scatter, others some more: each rank sends as many sums as
/// it has nodes. An owner's own nodes are overwritten in its chunk.
///
/// Runs on the executor's thread, in host memory. What the order points to must stay valid until the
/// operation is over.
class TreeExchange final : public CollectiveOperation {
 public:
  TreeExchange(std::string name, const CollectiveLane& lane, TreeExchangeOrder order);

 private:
  void Begin() override;
  void End() override;

  void SendChunks();
  void Arrived();
  void SumOwnChunk();
  std::vector<std::vector<float*>> NodesOfOwnChunk();
  std::span<std::byte> ResultOf(std::size_t member) const;
  std::size_t SizeOf(std::size_t member) const {
    return static_cast<std::size_t>(order_.chunks[member].size());
  }
  std::size_t NodesOfMember(std::size_t member) const {
    return NodesOf(order_.shares[member], order_.units).size();
  }

  const TreeExchangeOrder order_;
  std::vector<std::unique_ptr<float[]>> packed_;    // [members]: [trees][own nodes][their chunk]
  std::vector<std::unique_ptr<float[]>> received_;  // [members]: [trees][their nodes][own chunk]
  std::size_t missing_ = 0;                         // messages that have not arrived
};

}  // namespace adaptive_train
