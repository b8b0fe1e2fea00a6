// Cuts the gradient arena for the exchange: layers into buckets, buckets into one chunk per rank
// (BucketRule), chunks into pieces of one parameter each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/bucket_rule.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Elements [begin, end) of the arena, with one common selection.
struct GradientPiece {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool selected = false;  // ParameterLayout::SelectsFrom; otherwise always sent whole
  std::size_t size() const { return end - begin; }
};

/// The part of a bucket that one rank owns; its pieces are contiguous.
struct GradientChunk {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<GradientPiece> pieces;
  std::size_t size() const { return end - begin; }
  std::vector<std::int64_t> PieceLengths() const;
  /// Words of its pieces' bitmaps, one after the other.
  std::size_t Words() const;
};

/// A part of one layer that is exchanged at once.
struct GradientBucket {
  std::size_t begin = 0;
  std::size_t end = 0;
  int layer = 0;  // its index in LayersOf
  std::size_t size() const { return end - begin; }
};

/// Buckets of at most `bucket_elements`, from the arena's end, where backward finishes first, to
/// its start. None mixes the token matrix with anything else. Every rank has a chunk of every
/// bucket (block-cyclic ownership), so that no owner holds all of a parameter from which more is
/// selected than from others. Chunks follow a rule and are not stored: memory does not grow with
/// ranks times buckets. The result depends on the arguments alone, so all ranks agree. A value; any
/// thread.
class GradientBuckets {
 public:
  /// Chunks are in the order of `owners`, a permutation of the ranks.
  GradientBuckets(const ParameterLayout& layout, std::vector<int> owners,
                  std::size_t bucket_elements);

  std::size_t size() const { return buckets_.size(); }
  const GradientBucket& operator[](std::size_t bucket) const { return buckets_[bucket]; }
  auto begin() const { return buckets_.begin(); }
  auto end() const { return buckets_.end(); }
  auto rbegin() const { return buckets_.rbegin(); }
  auto rend() const { return buckets_.rend(); }

  int Ranks() const { return static_cast<int>(owners_.size()); }
  /// The rank that owns the chunks of each place.
  const std::vector<int>& owners() const { return owners_; }
  const BucketRule& rule() const { return rule_; }
  /// A rank's place in the rule.
  std::int64_t PlaceOf(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  /// What a rank owns of a bucket.
  GradientChunk ChunkOf(const GradientBucket& bucket, int rank) const;
  /// The same without its pieces.
  ElementRange RangeOf(const GradientBucket& bucket, int rank) const;

 private:
  BucketRule rule_;
  std::vector<int> owners_;
  std::vector<std::int64_t> places_;  // [ranks]
  std::vector<GradientPiece> runs_;   // of the arena, ascending
  std::vector<GradientBucket> buckets_;
};

}  // namespace adaptive_train
