// Sums that ranks can share and still get the bits of one rank: terms in fixed groups, which are
// added as a balanced tree.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace adaptive_train::kernels {

/// The first of `length` things that belong to group `group` of `count`. Of a run that `ranks` ranks
/// share evenly, a rank's groups are those of its own part: group r * count / ranks + g of the whole
/// is group g of count / ranks of rank r's part.
inline constexpr std::int64_t GroupBegin(std::int64_t length, std::int64_t group,
                                         std::int64_t count) {
  return length * group / count;
}

/// A sum over `inner` in groups. inner consists of runs; group g has of each run its elements from
/// GroupBegin(run, g, count) to GroupBegin(run, g + 1, count). A group's sum is made from zero, its
/// runs in turn, then all groups are added as a balanced tree. 2, 4 or more ranks may have as
/// many groups between them. If each has an equal and contiguous part of every run, and their results
/// are added as a balanced tree in their order, the bits are those of one rank.
struct InnerGroups {
  std::int64_t count = 0;                   // a power of two; 0: a sum as the device likes it best
  std::span<const std::int64_t> runs = {};  // their lengths; in all they are inner
};

/// The places of AddTree besides the result's.
inline constexpr std::int64_t TreeDepth(std::int64_t leaves) {
  return std::bit_width(static_cast<std::uint64_t>(leaves)) - 1;
}

/// Adds leaves [first, first + count) as a balanced tree; count is a power of two. leaf(i, place)
/// makes leaf i at a place, add(from, to) adds one place to another. The sum is at `place` in the
/// end; TreeDepth(count) places after it are used on the way. Leaf `first` is the first to be made,
/// and the only one that is made at `place`.
template <class Leaf, class Add>
void AddTree(std::int64_t first, std::int64_t count, std::int64_t place, const Leaf& leaf,
             const Add& add) {
  if (count == 1) return leaf(first, place);
  AddTree(first, count / 2, place, leaf, add);
  AddTree(first + count / 2, count / 2, place + 1, leaf, add);
  add(place + 1, place);
}

}  // namespace adaptive_train::kernels
