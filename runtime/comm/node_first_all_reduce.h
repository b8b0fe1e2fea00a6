// The all-reduce of ranks that share nodes: inside nodes, between them, inside again.
#pragma once

#include <vector>

#include "runtime/comm/stepped_all_reduce.h"

namespace adaptive_train {

/// For N nodes of m ranks each. A ring's reduce-scatter inside each node leaves every rank with one
/// part of the node's sum. A ring over the ranks with the same part on all nodes sums it, and an
/// all-gather inside each node distributes the sums. A node sends 2 n (N-1)/N values to others,
/// where one ring over all sends 2 n (N m - 1)/(N m). There are 2 (N-1) rounds between nodes
/// instead of 2 (N m - 1). Each sum is computed once and passed on.
template <class T>
class NodeFirstAllReduce final : public SteppedAllReduce<T> {
 public:
  /// `nodes` holds the ranks of each node, equally many; it must outlive this object.
  NodeFirstAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data,
                     const std::vector<std::vector<int>>& nodes)
      : SteppedAllReduce<T>(std::move(name), lane, data), nodes_(nodes) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (std::size_t i = 0; i < nodes[n].size(); ++i) {
        if (nodes[n][i] != lane.rank) continue;
        node_ = static_cast<int>(n);
        place_ = static_cast<int>(i);
      }
    }
  }

 private:
  using typename SteppedAllReduce<T>::Move;

  int Inside() const { return static_cast<int>(nodes_.front().size()); }
  int Between() const { return static_cast<int>(nodes_.size()); }
  int RankAt(int node, int place) const {
    return nodes_[static_cast<std::size_t>(node)][static_cast<std::size_t>(place)];
  }

  int Steps() const override { return 2 * (Inside() - 1) + 2 * (Between() - 1); }
  Move MoveOf(int step) const override {
    const int half = Inside() - 1, between = 2 * (Between() - 1);
    if (step >= half && step < half + between) {
      // A ring's reduce-scatter leaves a rank with the chunk after its own place.
      const std::span<T> part = this->Chunk(this->Data(), place_ + 1, Inside());
      Move move = this->RingMove(part, node_, Between(), step - half);
      move.to = RankAt(move.to, place_);
      move.from = RankAt(move.from, place_);
      return move;
    }
    Move move = this->RingMove(this->Data(), place_, Inside(), step < half ? step : step - between);
    move.to = RankAt(node_, move.to);
    move.from = RankAt(node_, move.from);
    return move;
  }

  const std::vector<std::vector<int>>& nodes_;
  int node_ = 0, place_ = 0;  // of this rank
};

}  // namespace adaptive_train
