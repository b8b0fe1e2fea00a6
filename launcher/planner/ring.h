// The order in which replicas pass their gradients around: the ring whose slowest link is fastest.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "launcher/planner/layout.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Finds rings of nodes, and remembers those it found. Holds a reference to the links. Not for
/// several threads.
class RingFinder {
 public:
  explicit RingFinder(const LinkTable& links);

  /// Positions of `nodes` in the order of the ring, position 0 first. The lowest bandwidth is as
  /// high as can be, and then the highest latency as low, for up to kExactMembers members; for more
  /// by a greedy choice of links that keeps the members of a node together.
  std::vector<int> Order(std::span<const int> nodes);

  /// Speed of that ring. Fast for sets that were asked for before and for large sets, where members
  /// follow the order of one tour of all nodes.
  RingSpeed Speed(std::span<const int> nodes);

  /// All nodes, in an order with fast links between neighbours. Index = position, value = node.
  const std::vector<int>& Tour() const { return tour_; }
  /// Inverse of Tour.
  int TourPosition(int node) const { return position_[static_cast<std::size_t>(node)]; }

  static constexpr std::size_t kExactMembers = 8;

 private:
  RingSpeed TourSpeed(std::span<const int> nodes);

  const LinkTable& links_;
  std::vector<int> tour_, position_;
  std::map<std::vector<int>, RingSpeed> known_;
  // TourSpeed's; all 0 between calls.
  std::vector<int> count_;              // of members, index = position in the tour
  std::vector<std::uint64_t> present_;  // bit = position in the tour
  std::vector<int> sorted_;
};

}  // namespace adaptive_train
