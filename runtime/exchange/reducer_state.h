// The state that all buckets' exchanges share on one rank, and what each keeps from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "kernels/host_copy.h"
#include "runtime/comm/group.h"
#include "runtime/exchange/exchange_policy.h"
#include "runtime/exchange/gradient_buckets.h"
#include "runtime/exchange/gradient_selection.h"
#include "runtime/exchange/rank_groups.h"
#include "runtime/exchange/tree_exchange.h"

namespace adaptive_train {

/// Fixed options.
struct ReducerOptions {
  static constexpr std::size_t kBucketElements = std::size_t{1} << 20;

  bool feedback = false;  // allocates residuals, as large as gradients, for compression
  bool sharded = false;   // only a chunk's owner gets its sum
  /// With sharded: gradients of other owners' chunks leave the arena when they are sent (ZeRO stage
  /// 2; Rajbhandari et al., 2020), so that it never holds all of them. A step may then exchange the
  /// gradients of several micro-batches in sequence.
  bool release = false;
  std::size_t bucket_elements = kBucketElements;
  /// The members of each node, equally many; empty if they are not, or do not share nodes.
  std::vector<std::vector<int>> nodes = {};
  /// Sums are made by these trees, and nothing is compressed, released, or summed inside nodes first.
  /// Gradients that are final are those of the rank's last unit.
  std::optional<UnitTrees> trees = {};
};

/// What a step has sent so far.
struct ExchangeCounts {
  std::int64_t added = 0, selected = 0;  // elements
  double select_cpu_s = 0;               // processor time of selecting and packing
  int unpeeled = 0;                      // buckets whose sketch could not be peeled
};

/// Not thread-safe. Arguments passed by reference must outlive it.
template <class T>
struct ReducerState {
  ReducerState(Group& data, kernels::Device<T>& computes, const ParameterLayout& layout,
               std::span<float> gradient_arena, const ReducerOptions& asked);

  /// The state of one bucket from step to step.
  struct Kept {
    bool holds = false;            // some residual may be nonzero
    bool others_restored = false;  // also in a part that other ranks select from
    std::optional<std::uint64_t> owner_lane, sketch_lane;  // the last tag
  };

  bool Feedback() const { return residuals.size() > 0; }
  /// Whether sums start inside nodes.
  bool NodeFirst() const { return groups.Places() > 0 && !group.Ways().nodes.empty(); }
  /// The owners that this rank sends to, in chunk order.
  const std::vector<int>& Owners() const { return NodeFirst() ? groups.between : groups.all; }
  GradientChunk OwnChunk(const GradientBucket& bucket) const {
    return buckets.ChunkOf(bucket, group.Rank());
  }
  /// The part of a bucket that some owners have, whose chunks are contiguous.
  std::span<float> Together(const GradientBucket& bucket, const std::vector<int>& owners) const;
  SelectedChunk Select(const GradientChunk& chunk, double density, kernels::ValueFormat format);
  /// Releases a bucket's gradients outside [begin, end).
  void ReleaseAround(const GradientBucket& bucket, std::size_t begin, std::size_t end);
  void ReleaseOthers(const GradientBucket& bucket) {
    const ElementRange own = buckets.RangeOf(bucket, group.Rank());
    ReleaseAround(bucket, static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.end));
  }
  /// Removes a bucket's sum that is not finite from the arena. Later micro-batches add to the sum
  /// before it, and the step reports it at its end.
  void PutOffNotFinite(const GradientBucket& bucket);
  std::string NameOf(const CollectiveLane& lane, std::size_t bucket) const;

  Group& group;
  kernels::Device<T>& device;
  const std::span<float> gradients;
  const ReducerOptions options;
  const RankGroups groups;
  const GradientBuckets buckets;
  kernels::Buffer<float> residuals;
  GradientSelection<T> selection;
  // What the host knows of a bucket, for operations of the device.
  kernels::DeviceCopy<float> values;
  kernels::DeviceCopy<std::uint64_t> bitmaps;
  std::vector<Kept> kept;  // [buckets]
  ExchangePolicy policy;
  bool adds_nothing = false;  // this rank has no gradients in this micro-batch
  bool not_finite = false;    // an earlier micro-batch's sum was not
  ExchangeCounts counts;
};

}  // namespace adaptive_train
