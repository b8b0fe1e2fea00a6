#include "runtime/exchange/gradient_buckets.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/compress/index_coding.h"

namespace adaptive_train {
namespace {

/// Runs of the arena with one selection each: a matrix, or neighbours that go whole.
std::vector<GradientPiece> RunsOf(const ParameterLayout& layout) {
  std::vector<GradientPiece> runs;
  for (const ParameterRange& range : layout.ranges()) {
    const auto begin = static_cast<std::size_t>(range.offset);
    const auto end = begin + static_cast<std::size_t>(range.count);
    const bool selected = layout.SelectsFrom(range);
    if (!selected && !runs.empty() && !runs.back().selected) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, selected});
    }
  }
  return runs;
}

std::vector<GradientPiece> PiecesIn(const std::vector<GradientPiece>& runs, std::size_t begin,
                                    std::size_t end) {
  std::vector<GradientPiece> pieces;
  if (begin == end) return pieces;
  auto run = std::upper_bound(
      runs.begin(), runs.end(), begin,
      [](std::size_t place, const GradientPiece& piece) { return place < piece.end; });
  for (; run != runs.end() && run->begin < end; ++run)
    pieces.push_back({std::max(begin, run->begin), std::min(end, run->end), run->selected});
  return pieces;
}

/// A layer or a part of one. The token matrix may be ready before its neighbours. What of the head all
/// tensor ranks have alike is a part, so that it is cut alike on them: parts of a vocabulary may differ
/// by one.
struct PieceOfLayer {
  std::size_t begin = 0, end = 0;
  int layer = 0;
};

/// 0 where there is none, or a single tensor rank.
std::size_t EndOfAlikeHead(const ParameterLayout& layout) {
  if (layout.tensor().ranks == 1) return 0;
  for (const char* split : {"head.bias", "lm_head.weight"})
    if (const auto offset = layout.OffsetOf(split); offset > 0)
      return static_cast<std::size_t>(offset);
  return 0;
}

std::vector<PieceOfLayer> PartsOf(const ParameterLayout& layout) {
  std::vector<PieceOfLayer> parts;
  const ParameterRange* tokens = layout.Find("wte.weight");
  const auto offset = static_cast<std::size_t>(tokens == nullptr ? 0 : tokens->offset);
  const auto count = static_cast<std::size_t>(tokens == nullptr ? 0 : tokens->count);
  const std::size_t split = EndOfAlikeHead(layout);
  int layer = 0;
  for (const LayerElements& elements : LayersOf(layout)) {
    std::size_t begin = elements.begin;
    for (const std::size_t end : {offset, offset + count, split, elements.end}) {
      if (end <= begin || end > elements.end) continue;
      parts.push_back({begin, end, layer});
      begin = end;
    }
    ++layer;
  }
  return parts;
}

}  // namespace

std::vector<std::int64_t> GradientChunk::PieceLengths() const {
  std::vector<std::int64_t> lengths;
  lengths.reserve(pieces.size());
  for (const GradientPiece& piece : pieces)
    lengths.push_back(static_cast<std::int64_t>(piece.size()));
  return lengths;
}

std::size_t GradientChunk::Words() const {
  std::size_t words = 0;
  for (const std::int64_t length : PieceLengths()) words += BitmapWords(length);
  return words;
}

GradientBuckets::GradientBuckets(const ParameterLayout& layout, std::vector<int> owners,
                                 std::size_t bucket_elements)
    : owners_(std::move(owners)), places_(owners_.size()), runs_(RunsOf(layout)) {
  assert(!owners_.empty() && bucket_elements > 0);
  rule_.bucket_elements = static_cast<std::int64_t>(bucket_elements);
  rule_.places = static_cast<std::int64_t>(owners_.size());
  for (std::size_t place = 0; place < owners_.size(); ++place)
    places_[static_cast<std::size_t>(owners_[place])] = static_cast<std::int64_t>(place);
  const std::vector<PieceOfLayer> parts = PartsOf(layout);
  for (const PieceOfLayer& part : parts)
    rule_.part_ends.push_back(static_cast<std::int64_t>(part.end));
  for (std::size_t part = parts.size(); part-- > 0;) {
    const ElementRanges cut = rule_.BucketsOf(part);
    for (auto range = cut.rbegin(); range != cut.rend(); ++range)
      buckets_.push_back({static_cast<std::size_t>(range->begin),
                          static_cast<std::size_t>(range->end), parts[part].layer});
  }
}

ElementRange GradientBuckets::RangeOf(const GradientBucket& bucket, int rank) const {
  const ElementRange whole{static_cast<std::int64_t>(bucket.begin),
                           static_cast<std::int64_t>(bucket.end)};
  return rule_.ChunkOf(whole, PlaceOf(rank));
}

GradientChunk GradientBuckets::ChunkOf(const GradientBucket& bucket, int rank) const {
  const ElementRange range = RangeOf(bucket, rank);
  GradientChunk chunk;
  chunk.begin = static_cast<std::size_t>(range.begin);
  chunk.end = static_cast<std::size_t>(range.end);
  chunk.pieces = PiecesIn(runs_, chunk.begin, chunk.end);
  return chunk;
}

}  // namespace adaptive_train
