// Who exchanges gradients with whom where ranks share nodes.
#pragma once

#include <cstddef>
#include <vector>

namespace adaptive_train {

/// As one rank sees it. A bucket's chunks lie place by place, and for each place node by node, so
/// that what the ranks of one place own, a part, lies together.
struct RankGroups {
  std::vector<int> all;                  // every rank, in the order of the chunks
  std::vector<std::vector<int>> places;  // the ranks of each place, by node; empty without nodes
  std::vector<int> inside;               // the ranks of the own node, by place; empty likewise
  std::vector<int> between;              // those of the own place, by node; empty likewise

  /// `nodes`: the ranks of each, equally many; or empty.
  static RankGroups Of(const std::vector<std::vector<int>>& nodes, int rank, int ranks);
  std::size_t Places() const { return places.size(); }
};

}  // namespace adaptive_train
