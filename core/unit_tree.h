// The tree in which the units of a step are summed, so that sums do not depend on who has which
// unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adaptive_train {

/// Units [begin, end) of a step. A unit is a micro-batch of the global batch, numbered from 0 in the
/// order of the samples.
struct UnitRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const UnitRange&) const = default;
};

// The tree over units [0, units) is balanced: a node of level k covers units [i 2^k, (i + 1) 2^k),
// as far as there are so many. Its value is the sum of its halves' values. A node is known by the
// units that it covers.

/// The largest nodes that together cover `range`, ascending: at most 2 log2 of its size.
std::vector<UnitRange> NodesOf(const UnitRange& range, std::int64_t units);

/// sums[into] += sums[from].
struct NodeAddition {
  std::size_t into = 0;
  std::size_t from = 0;
  bool operator==(const NodeAddition&) const = default;
};

/// The additions, in order, that make sums[0] the root's value of the sums of `nodes`. The nodes are
/// the tree's, ascending, and together cover [0, units).
std::vector<NodeAddition> AdditionsToRoot(std::span<const UnitRange> nodes, std::int64_t units);

/// How many sums are kept at most while the units of `range` come one after another and are summed
/// as far as the tree allows, before the last one comes.
std::int64_t MostKept(const UnitRange& range, std::int64_t units);
/// The same at most, for any range of so many units.
std::int64_t MostKeptOfAny(std::int64_t size);

/// The root's value of numbers, one per unit. 0 units give 0.
double SumOfUnits(std::span<const double> numbers);

}  // namespace adaptive_train
