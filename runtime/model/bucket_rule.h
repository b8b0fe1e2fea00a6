// Who owns which part of an arena: a rule of a few numbers, the same for the exchange of gradients,
// the sharded optimizer and the files of a checkpoint.
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
/// Ascending, without overlaps; gaps are others'.
using ElementRanges = std::vector<ElementRange>;

/// Part i of n nearly equal ones begins at floor(elements * i / n), for n up to 2^31.
std::int64_t FractionOf(std::int64_t elements, std::int64_t i, std::int64_t n);

/// Each part of the arena is cut into as few nearly equal buckets of at most `bucket_elements` as
/// there can be, and each bucket into one chunk per place, in the order of the places: chunk p of n
/// begins at FractionOf(bucket, p, n), rounded down to a multiple of `alignment` from the bucket's
/// begin. Nothing is stored by bucket or place, so a rule is as small for a thousand ranks as for
/// one. All elements are counted in the arena. A value; any thread.
struct BucketRule {
  /// A cache line of float32, so that no two places share one.
  static constexpr std::int64_t kAlignment = 16;

  std::vector<std::int64_t> part_ends;  // ascending; the last one is the arena's size
  std::int64_t bucket_elements = 1;
  std::int64_t places = 1;
  std::int64_t alignment = kAlignment;

  /// An arena that is one bucket.
  static BucketRule Whole(std::int64_t elements, std::int64_t places);

  std::int64_t size() const { return part_ends.empty() ? 0 : part_ends.back(); }
  /// Of all parts.
  std::int64_t BucketCount() const;
  /// The buckets of a part, ascending.
  ElementRanges BucketsOf(std::size_t part) const;
  /// The bucket that has the element, which is one of the arena.
  ElementRange BucketAt(std::int64_t element) const;
  /// What a place owns of a bucket; may be empty.
  ElementRange ChunkOf(const ElementRange& bucket, std::int64_t place) const;
  /// Who owns an element of a bucket.
  std::int64_t PlaceAt(const ElementRange& bucket, std::int64_t element) const;
  /// All that a place owns, less what is empty; neighbours are one range.
  ElementRanges OwnedBy(std::int64_t place) const;
  /// Elements that a place owns.
  std::int64_t CountOf(std::int64_t place) const;

 private:
  ElementRange PartAt(std::size_t part) const;
  std::int64_t BucketsIn(const ElementRange& part) const;
};

}  // namespace adaptive_train
