// The rule that assigns parts of an arena to owners, for the exchange of gradients and the sharded
// optimizer alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adaptive_train {

/// Elements [begin, end) of an arena.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};
/// Ascending, without overlaps; gaps belong to others.
using ElementRanges = std::vector<ElementRange>;

/// Part i of n nearly equal ones begins at floor(elements * i / n), for n up to 2^31.
std::int64_t FractionOf(std::int64_t elements, std::int64_t i, std::int64_t n);

/// Each part of the arena is cut into as few nearly equal buckets of at most `bucket_elements` as
/// possible. Each bucket has one chunk per place, in the order of the places. Chunk p of n begins
/// at FractionOf(bucket, p, n), rounded down to a multiple of `alignment` from the bucket's begin.
/// Nothing is stored per bucket or place, so a rule for a thousand ranks is as small as for one.
/// All elements are indices in the arena. A value; any thread.
struct BucketRule {
  /// A cache line of float32, so that no two places share one.
  static constexpr std::int64_t kAlignment = 16;

  std::vector<std::int64_t> part_ends;  // ascending; the last one is the arena's size
  std::int64_t bucket_elements = 1;
  std::int64_t places = 1;
  std::int64_t alignment = kAlignment;

  /// An arena with a single bucket.
  static BucketRule Whole(std::int64_t elements, std::int64_t places);

  std::int64_t size() const { return part_ends.empty() ? 0 : part_ends.back(); }
  /// The number of buckets of all parts.
  std::int64_t BucketCount() const;
  /// The buckets of a part, ascending.
  ElementRanges BucketsOf(std::size_t part) const;
  /// The bucket that contains the element of the arena.
  ElementRange BucketAt(std::int64_t element) const;
  /// The part of a bucket that a place owns; may be empty.
  ElementRange ChunkOf(const ElementRange& bucket, std::int64_t place) const;
  /// The place that owns an element of a bucket.
  std::int64_t PlaceAt(const ElementRange& bucket, std::int64_t element) const;
  /// Everything that a place owns, without empty ranges; adjacent ranges are merged.
  ElementRanges OwnedBy(std::int64_t place) const;
  /// The number of elements that a place owns.
  std::int64_t CountOf(std::int64_t place) const;

 private:
  ElementRange PartAt(std::size_t part) const;
  std::int64_t BucketsIn(const ElementRange& part) const;
};

}  // namespace adaptive_train
