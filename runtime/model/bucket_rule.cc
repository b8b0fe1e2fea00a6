#include "runtime/model/bucket_rule.h"

#include <algorithm>
#include <cassert>

namespace adaptive_train {
namespace {

/// The largest i in [0, n) with begin_of(i) <= `element`; begin_of ascends from 0.
template <class BeginOf>
std::int64_t LastBefore(std::int64_t element, std::int64_t n, BeginOf begin_of) {
  std::int64_t low = 0, high = n;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (begin_of(middle) <= element ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::int64_t FractionOf(std::int64_t elements, std::int64_t i, std::int64_t n) {
  return elements / n * i + elements % n * i / n;
}

BucketRule BucketRule::Whole(std::int64_t elements, std::int64_t places) {
  return {{elements}, std::max<std::int64_t>(elements, 1), places};
}

ElementRange BucketRule::PartAt(std::size_t part) const {
  return {part == 0 ? 0 : part_ends[part - 1], part_ends[part]};
}

std::int64_t BucketRule::BucketsIn(const ElementRange& part) const {
  return part.size() / bucket_elements + (part.size() % bucket_elements > 0 ? 1 : 0);
}

std::int64_t BucketRule::BucketCount() const {
  std::int64_t count = 0;
  for (std::size_t part = 0; part < part_ends.size(); ++part) count += BucketsIn(PartAt(part));
  return count;
}

ElementRanges BucketRule::BucketsOf(std::size_t part) const {
  const ElementRange whole = PartAt(part);
  const std::int64_t count = BucketsIn(whole);
  ElementRanges buckets;
  for (std::int64_t i = 0; i < count; ++i)
    buckets.push_back({whole.begin + FractionOf(whole.size(), i, count),
                       whole.begin + FractionOf(whole.size(), i + 1, count)});
  return buckets;
}

ElementRange BucketRule::BucketAt(std::int64_t element) const {
  assert(0 <= element && element < size());
  const auto part = std::upper_bound(part_ends.begin(), part_ends.end(), element);
  const ElementRange whole = PartAt(static_cast<std::size_t>(part - part_ends.begin()));
  const std::int64_t count = BucketsIn(whole);
  const auto begin_of = [&](std::int64_t i) { return FractionOf(whole.size(), i, count); };
  const std::int64_t i = LastBefore(element - whole.begin, count, begin_of);
  return {whole.begin + begin_of(i), whole.begin + begin_of(i + 1)};
}

ElementRange BucketRule::ChunkOf(const ElementRange& bucket, std::int64_t place) const {
  const auto edge = [&](std::int64_t i) {
    if (i == places) return bucket.end;
    return bucket.begin + FractionOf(bucket.size(), i, places) / alignment * alignment;
  };
  return {edge(place), edge(place + 1)};
}

std::int64_t BucketRule::PlaceAt(const ElementRange& bucket, std::int64_t element) const {
  return LastBefore(element, places,
                    [&](std::int64_t place) { return ChunkOf(bucket, place).begin; });
}

ElementRanges BucketRule::OwnedBy(std::int64_t place) const {
  ElementRanges owned;
  for (std::size_t part = 0; part < part_ends.size(); ++part) {
    for (const ElementRange& bucket : BucketsOf(part)) {
      const ElementRange chunk = ChunkOf(bucket, place);
      if (chunk.size() == 0) continue;
      if (!owned.empty() && owned.back().end == chunk.begin) {
        owned.back().end = chunk.end;
      } else {
        owned.push_back(chunk);
      }
    }
  }
  return owned;
}

std::int64_t BucketRule::CountOf(std::int64_t place) const {
  std::int64_t count = 0;
  for (std::size_t part = 0; part < part_ends.size(); ++part)
    for (const ElementRange& bucket : BucketsOf(part)) count += ChunkOf(bucket, place).size();
  return count;
}

}  // namespace adaptive_train
