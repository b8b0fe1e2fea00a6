// The order in which replicas pass their gradients around: the ring whose slowest link is fastest.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "launcher/planner/layout.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Finds rings of nodes and caches them. Holds a reference to the links. Not thread-safe.
class RingFinder {
 public:
  explicit RingFinder(const LinkTable& links);

  /// Positions of `nodes` in the order of the ring, position 0 first. Up to kExactMembers members
  /// the lowest bandwidth is maximal, and then the highest latency minimal. For more members links
  /// are chosen greedily, and the members of a node stay together.
  std::vector<int> Order(std::span<const int> nodes);

  /// The speed of that ring. Fast for cached sets and for large ones, whose members follow one tour
  /// of all nodes.
  RingSpeed Speed(std::span<const int> nodes);

  /// All nodes, with fast links between neighbours. Index = position, value = node.
  const std::vector<int>& Tour() const { return tour_; }
  /// Inverse of Tour.
  int TourPosition(int node) const { return position_[static_cast<std::size_t>(node)]; }

  static constexpr std::size_t kExactMembers = 8;

 private:
  RingSpeed TourSpeed(std::span<const int> nodes);

  const LinkTable& links_;
  std::vector<int> tour_, position_;
  std::map<std::vector<int>, RingSpeed> known_;
  // Scratch of TourSpeed; all 0 between calls.
  std::vector<int> count_;              // of members, index = position in the tour
  std::vector<std::uint64_t> present_;  // bit = position in the tour
  std::vector<int> sorted_;
};

}  // namespace adaptive_train
