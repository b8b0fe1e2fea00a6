// Sums the gradients of a rank's units as the tree over all units says (core/unit_tree.h), while
// they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/unit_tree.h"
#include "kernels/buffer.h"
#include "kernels/device.h"

namespace adaptive_train {

/// An arena in which each unit's gradients stand alone for a while: backward adds them to zeros, and
/// Take moves them into sums of as many units as the tree allows. These are kept beside the arena,
/// in as few copies of it as can be (MostKept). The last unit's stay in the arena. Not thread-safe.
template <class T>
class UnitSums {
 public:
  /// `own`, at least one unit, of `units`. The device and the arena must outlive this. Throws
  /// kernels::AllocationFailure.
  UnitSums(kernels::Device<T>& device, std::span<float> arena, const UnitRange& own,
           std::int64_t units);

  /// Elements [begin, end) of the arena have all gradients of `unit`, and no others. Before the last
  /// unit they become 0. Units of the same elements come in ascending order.
  void Take(std::size_t begin, std::size_t end, std::int64_t unit);

  /// After the last unit: the sums of NodesOf(own), in this order, each as large as the arena, which
  /// is the last one. The same places in every step.
  std::vector<std::span<float>> Nodes();

 private:
  kernels::Device<T>& device_;
  const std::span<float> arena_;
  const UnitRange own_;
  const std::int64_t units_;
  std::vector<kernels::Buffer<float>> kept_;  // the sums so far, the earliest units first
};

}  // namespace adaptive_train
