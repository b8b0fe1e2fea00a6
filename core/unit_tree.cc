#include "core/unit_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace adaptive_train {
namespace {

/// The units of the root, if all were there.
std::int64_t WidthOf(std::int64_t units) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(units)));
}

/// Looks for nodes of `range` in the one that begins at `begin`.
void AddNodes(const UnitRange& range, std::int64_t units, std::int64_t begin, std::int64_t width,
              std::vector<UnitRange>& nodes) {
  const UnitRange node{begin, std::min(begin + width, units)};
  if (node.end <= range.begin || range.end <= node.begin) return;
  if (range.begin <= node.begin && node.end <= range.end) return nodes.push_back(node);
  AddNodes(range, units, begin, width / 2, nodes);
  AddNodes(range, units, begin + width / 2, width / 2, nodes);
}

/// Walks through a tree whose lowest nodes are `nodes`.
struct Additions {
  std::span<const UnitRange> nodes;
  std::int64_t units;
  std::size_t next = 0;  // node
  std::vector<NodeAddition> list = {};

  /// Gives where the sum of the node that begins at `begin` is.
  std::size_t Sum(std::int64_t begin, std::int64_t width) {
    const std::int64_t end = std::min(begin + width, units);
    if (nodes[next] == UnitRange{begin, end}) return next++;
    assert(width > 1);
    const std::size_t into = Sum(begin, width / 2);
    if (begin + width / 2 < end) {
      const std::size_t from = Sum(begin + width / 2, width / 2);
      list.push_back({into, from});
    }
    return into;
  }
};

}  // namespace

std::vector<UnitRange> NodesOf(const UnitRange& range, std::int64_t units) {
  assert(0 <= range.begin && range.begin <= range.end && range.end <= units);
  std::vector<UnitRange> nodes;
  if (range.size() > 0) AddNodes(range, units, 0, WidthOf(units), nodes);
  return nodes;
}

std::vector<NodeAddition> AdditionsToRoot(std::span<const UnitRange> nodes, std::int64_t units) {
  Additions additions{nodes, units};
  additions.Sum(0, WidthOf(units));
  assert(additions.next == nodes.size());
  return std::move(additions.list);
}

std::int64_t MostKept(const UnitRange& range, std::int64_t units) {
  std::int64_t most = 0;
  for (std::int64_t end = range.begin + 1; end < range.end; ++end)
    most = std::max(most, std::ssize(NodesOf({range.begin, end}, units)));
  return most;
}

/// The least that k nodes cover is 1 + 2 + ... up and down again.
std::int64_t MostKeptOfAny(std::int64_t size) {
  const std::int64_t before_last = size - 1;
  std::int64_t nodes = 0;
  for (std::int64_t covers = 0; before_last > 0;) {
    covers += std::int64_t{1} << (nodes / 2);
    if (covers > before_last) break;
    ++nodes;
  }
  return nodes;
}

double SumOfUnits(std::span<const double> numbers) {
  if (numbers.empty()) return 0;
  const auto units = std::ssize(numbers);
  std::vector<UnitRange> leaves;
  for (std::int64_t unit = 0; unit < units; ++unit) leaves.push_back({unit, unit + 1});
  std::vector<double> sums(numbers.begin(), numbers.end());
  for (const auto& [into, from] : AdditionsToRoot(leaves, units)) sums[into] += sums[from];
  return sums[0];
}

}  // namespace adaptive_train
