// What attention on vectors and by tiles share: where a head's matrices are, and runs of
// queries against blocks of keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/softmax.h"

namespace adaptive_train::kernels::cpu {

/// One sample's matrices for a query head and the key and value head that it uses.
template <class T>
struct Head {
  T *query, *key, *value;
  std::int64_t stride;
};

template <class T>
Head<T> HeadAt(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head,
               std::int64_t kv_head) {
  const std::int64_t heads = shape.heads + 2 * shape.kv_heads;
  T* first = qkv + sample * shape.sequence * heads * shape.head_size;
  return {.query = first + head * shape.head_size,
          .key = first + (shape.heads + kv_head) * shape.head_size,
          .value = first + (shape.heads + shape.kv_heads + kv_head) * shape.head_size,
          .stride = heads * shape.head_size};
}

template <class T>
Head<T> HeadAt(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head) {
  return HeadAt(shape, qkv, sample, head, head / (shape.heads / shape.kv_heads));
}

/// The start of a sample's and head's output rows, which are heads * head_size apart.
inline std::int64_t OutputAt(const AttentionShape& shape, std::int64_t sample, std::int64_t head) {
  return (sample * shape.sequence * shape.heads + head) * shape.head_size;
}

inline float ScoreScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_size));
}

/// Consecutive queries or keys.
struct Range {
  std::int64_t first, count;
};

/// The keys of the block that each query sees.
inline VisibleEntries VisibleTo(const AttentionShape& shape, const Range& queries,
                                const Range& keys) {
  if (!shape.causal) return {keys.count, 0, keys.count};
  return {queries.first + 1 - keys.first, 1, keys.count};
}

/// Calls body(keys) for each block of `most` keys that any of the queries sees.
template <class Body>
void ForKeys(const AttentionShape& shape, const Range& queries, std::int64_t most,
             const Body& body) {
  const std::int64_t end = shape.causal ? queries.first + queries.count : shape.sequence;
  for (std::int64_t first = 0; first < end; first += most)
    body(Range{first, std::min(most, end - first)});
}

/// Calls body(row, rows, visible) for up to `most` of the queries at a time; `row` is counted from
/// the first query. Queries that see none of the keys are skipped.
template <class Body>
void ForRows(const AttentionShape& shape, const Range& queries, const Range& keys,
             std::int64_t most, const Body& body) {
  for (std::int64_t row = 0; row < queries.count; row += most) {
    const Range rows{queries.first + row, std::min(most, queries.count - row)};
    const VisibleEntries visible = VisibleTo(shape, rows, keys);
    if (visible.Of(rows.count - 1) > 0) body(row, rows.count, visible);
  }
}

}  // namespace adaptive_train::kernels::cpu
