#include "runtime/exchange/gradient_buckets.h"

#include <algorithm>
#include <cassert>

#include "runtime/compress/index_coding.h"

namespace adaptive_train {
namespace {

/// A cache line of float32, so that no two ranks' chunks share one.
constexpr std::size_t kChunkAlignment = 16;

/// Runs of the arena that are selected from together: a matrix, or neighbouring vectors.
std::vector<GradientPiece> RunsOf(const ParameterLayout& layout) {
  std::vector<GradientPiece> runs;
  for (const ParameterRange& range : layout.ranges()) {
    const auto begin = static_cast<std::size_t>(range.offset);
    const auto end = begin + static_cast<std::size_t>(range.count);
    const bool matrix = range.shape.size() > 1;
    if (!matrix && !runs.empty() && !runs.back().matrix) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, matrix});
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
    pieces.push_back({std::max(begin, run->begin), std::min(end, run->end), run->matrix});
  return pieces;
}

std::size_t ChunkEdge(std::size_t elements, std::size_t chunk, std::size_t chunks) {
  if (chunk == chunks) return elements;
  return elements * chunk / chunks / kChunkAlignment * kChunkAlignment;
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

std::vector<GradientBucket> CutBuckets(const ParameterLayout& layout,
                                       const std::vector<int>& owners,
                                       std::size_t bucket_elements) {
  assert(!owners.empty() && bucket_elements > 0);
  const std::vector<GradientPiece> runs = RunsOf(layout);
  const std::vector<LayerElements> layers = LayersOf(layout);
  std::vector<GradientBucket> buckets;
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    const LayerElements& elements = layers[layer];
    const std::size_t parts = (elements.size() + bucket_elements - 1) / bucket_elements;
    for (std::size_t part = parts; part-- > 0;) {
      GradientBucket bucket;
      bucket.begin = elements.begin + elements.size() * part / parts;
      bucket.end = elements.begin + elements.size() * (part + 1) / parts;
      bucket.layer = static_cast<int>(layer);
      bucket.chunks.resize(owners.size());
      for (std::size_t place = 0; place < owners.size(); ++place) {
        GradientChunk& chunk = bucket.chunks[static_cast<std::size_t>(owners[place])];
        chunk.begin = bucket.begin + ChunkEdge(bucket.size(), place, owners.size());
        chunk.end = bucket.begin + ChunkEdge(bucket.size(), place + 1, owners.size());
        chunk.pieces = PiecesIn(runs, chunk.begin, chunk.end);
      }
      buckets.push_back(std::move(bucket));
    }
  }
  return buckets;
}

}  // namespace adaptive_train
