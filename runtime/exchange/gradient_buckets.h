// How the gradient arena is cut for the exchange: layers into buckets, buckets into one chunk per
// rank, chunks into pieces of one parameter each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Elements [begin, end) of the arena that are selected from together.
struct GradientPiece {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool matrix = false;  // of a matrix; norms and biases are small and always sent whole
  std::size_t size() const { return end - begin; }
};

/// What one rank owns of a bucket; its pieces lie without gaps.
struct GradientChunk {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<GradientPiece> pieces;
  std::size_t size() const { return end - begin; }
  std::vector<std::int64_t> PieceLengths() const;
  /// Of its pieces' bitmaps, one after the other.
  std::size_t Words() const;
};

/// What is exchanged at once: a part of one layer.
struct GradientBucket {
  std::size_t begin = 0;
  std::size_t end = 0;
  int layer = 0;                      // its place in LayersOf
  std::vector<GradientChunk> chunks;  // [ranks]; chunk r is owned by rank r
  std::size_t size() const { return end - begin; }
};

/// Buckets of at most `bucket_elements` from the arena's end, where backward finishes first, to its
/// beginning; none has a part of the tokens' matrix and something else. Chunks lie in the order of
/// `owners`, which is a permutation of the ranks. Every rank has a chunk of every bucket
/// (block-cyclic ownership), so that no owner has all of a parameter that is selected from more
/// than others. Depends on its arguments alone, so all ranks agree. Chunks begin at multiples of 16
/// elements from their bucket's begin.
std::vector<GradientBucket> CutBuckets(const ParameterLayout& layout,
                                       const std::vector<int>& owners, std::size_t bucket_elements);

}  // namespace adaptive_train
