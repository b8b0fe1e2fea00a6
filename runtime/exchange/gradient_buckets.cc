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

/// A layer, or a part of it: the tokens' matrix may be ready before what lies beside it.
struct PieceOfLayer {
  std::size_t begin = 0, end = 0;
  int layer = 0;
};

std::vector<PieceOfLayer> PartsOf(const ParameterLayout& layout) {
  std::vector<PieceOfLayer> parts;
  const ParameterRange* tokens = layout.Find("wte.weight");
  const auto offset = static_cast<std::size_t>(tokens == nullptr ? 0 : tokens->offset);
  const auto count = static_cast<std::size_t>(tokens == nullptr ? 0 : tokens->count);
  int layer = 0;
  for (const LayerElements& elements : LayersOf(layout)) {
    std::size_t begin = elements.begin;
    for (const std::size_t end : {offset, offset + count, elements.end}) {
      if (end <= begin || end > elements.end) continue;
      parts.push_back({begin, end, layer});
      begin = end;
    }
    ++layer;
  }
  return parts;
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
  const std::vector<PieceOfLayer> layers = PartsOf(layout);
  std::vector<GradientBucket> buckets;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const std::size_t size = layer->end - layer->begin;
    const std::size_t parts = (size + bucket_elements - 1) / bucket_elements;
    for (std::size_t part = parts; part-- > 0;) {
      GradientBucket bucket;
      bucket.begin = layer->begin + size * part / parts;
      bucket.end = layer->begin + size * (part + 1) / parts;
      bucket.layer = layer->layer;
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
