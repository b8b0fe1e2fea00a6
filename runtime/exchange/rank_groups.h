// The groups for the exchange of gradients if ranks share nodes.
#pragma once

#include <cstddef>
#include <vector>

namespace adaptive_train {

/// The view of one rank. A bucket's chunks are ordered by place, and within a place by node. So the
/// part that the ranks of one place own is contiguous.
struct RankGroups {
  std::vector<int> all;                  // every rank, in chunk order
  std::vector<std::vector<int>> places;  // the ranks of each place, by node; empty without nodes
  std::vector<int> inside;               // the ranks of this node, by place; empty without nodes
  std::vector<int> between;              // those of this rank's place, by node; empty without nodes

  /// `nodes` holds the ranks of each node, equally many; or is empty.
  static RankGroups Of(const std::vector<std::vector<int>>& nodes, int rank, int ranks);
  std::size_t Places() const { return places.size(); }
};

}  // namespace adaptive_train
