// Attention block by block: a run of queries against the visible keys, one block of keys at a time.
// This is the form for vectors of floats; tiles have their own (kernels/cpu/tile_attention.h).
#include "kernels/attention.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_attention.h"

namespace adaptive_train::kernels::cpu {
namespace {

// Few rows of scores at a time, so that little is computed beyond the diagonal. A block of keys is
// packed once for a run of queries, and the panels of both fit into the second-level cache. This
// bounds a thread's scratch memory. The exception is the gradients of one head's keys and values, 2
// * sequence * head_size.
constexpr std::int64_t kRows = 24;
constexpr std::int64_t kQueries = 12 * kRows;
constexpr std::int64_t kKeys = 512;

/// Rows `range` of one head's matrix, as a panel of whole vectors.
template <class T>
PanelArguments<T> PanelOf(const AttentionShape& shape, const Range& range, T* matrix,
                          std::int64_t stride, float* panel) {
  return {.rows = range.count,
          .columns = shape.head_size,
          .matrix = matrix + range.first * stride,
          .matrix_stride = stride,
          .panel = panel,
          .panel_stride = PanelSize(shape.head_size)};
}

template <class T>
void CopyRows(const AttentionShape& shape, const Range& range, const T* matrix, std::int64_t stride,
              float* panel, float factor = 1) {
  WidenArguments<T> copy = PanelOf(shape, range, matrix, stride, panel);
  copy.factor = factor;
  Widen<T>(copy);
}

template <class T>
void TransposeKeys(const AttentionShape& shape, const Range& keys, const T* matrix,
                   std::int64_t stride, float* panel) {
  WidenArguments<T> copy = PanelOf(shape, keys, matrix, stride, panel);
  copy.panel_stride = kKeys;
  WidenTransposed<T>(copy);
}

template <class T>
void StoreRows(const AttentionShape& shape, const Range& range, const float* panel, T* matrix,
               std::int64_t stride, float factor) {
  NarrowArguments<T> copy = PanelOf(shape, range, matrix, stride, const_cast<float*>(panel));
  copy.factor = factor;
  Narrow<T>(copy);
}

/// scores[rows, width] = a[rows, head_size] b, where b is transposed keys or values.
void Scores(const AttentionShape& shape, std::int64_t rows, std::int64_t width, const float* a,
            const float* b, float* scores) {
  Product({.rows = rows,
           .columns = width,
           .inner = shape.head_size,
           .a = a,
           .a_row = PanelSize(shape.head_size),
           .b = b,
           .b_stride = kKeys,
           .c = scores,
           .c_stride = kKeys});
}

/// panel[rows] (+)= scores[rows, keys] of_keys[keys]
void WeightedSums(const AttentionShape& shape, std::int64_t rows, std::int64_t keys,
                  const float* scores, const float* of_keys, float* panel, bool accumulate) {
  const std::int64_t width = PanelSize(shape.head_size);
  Product({.rows = rows,
           .columns = width,
           .inner = keys,
           .a = scores,
           .a_row = kKeys,
           .b = of_keys,
           .b_stride = width,
           .c = panel,
           .c_stride = width,
           .accumulate = accumulate});
}

/// panel[keys] += scores[rows, keys]^T of_rows[rows]
void AddTransposedSums(const AttentionShape& shape, std::int64_t rows, std::int64_t keys,
                       const float* scores, const float* of_rows, float* panel) {
  const std::int64_t width = PanelSize(shape.head_size);
  Product({.rows = keys,
           .columns = width,
           .inner = rows,
           .a = scores,
           .a_row = 1,
           .a_inner = kKeys,
           .b = of_rows,
           .b_stride = width,
           .c = panel,
           .c_stride = width,
           .accumulate = true});
}

struct ForwardScratch {
  float *query, *key, *value, *sums, *scores;

  static std::int64_t Size(const AttentionShape& shape) {
    return 2 * (kQueries + kKeys) * PanelSize(shape.head_size) + kRows * kKeys;
  }
  ForwardScratch(const AttentionShape& shape, float* memory) {
    const std::int64_t width = PanelSize(shape.head_size);
    query = memory;
    sums = query + kQueries * width;
    key = sums + kQueries * width;
    value = key + kKeys * width;
    scores = value + kKeys * width;
  }
};

template <class T>
void ForwardQueries(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                    const Range& queries, const ForwardScratch& scratch) {
  const AttentionShape& shape = x.shape;
  const std::int64_t width = PanelSize(shape.head_size);
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  std::array<RunningSoftmax, kQueries> softmax;
  CopyRows(shape, queries, of.query, of.stride, scratch.query, ScoreScale(shape));
  ForKeys(shape, queries, kKeys, [&](const Range& keys) {
    TransposeKeys(shape, keys, of.key, of.stride, scratch.key);
    CopyRows(shape, keys, of.value, of.stride, scratch.value);
    ForRows(shape, queries, keys, kRows,
            [&](std::int64_t row, std::int64_t rows, const VisibleEntries& visible) {
              const std::int64_t seen = visible.Of(rows - 1), panel = PanelSize(seen);
              std::array<float, kRows> factors;
              Scores(shape, rows, panel, scratch.query + row * width, scratch.key, scratch.scores);
              ExponentialRows({rows, panel, kKeys, visible, scratch.scores},
                              &softmax[static_cast<std::size_t>(row)], factors.data());
              float* sums = scratch.sums + row * width;
              if (keys.first > 0) ScaleRows(rows, shape.head_size, factors.data(), sums, width);
              WeightedSums(shape, rows, seen, scratch.scores, scratch.value, sums, keys.first > 0);
            });
  });
  std::array<float, kQueries> reciprocals;
  float* log_sum_exp =
      x.log_sum_exp + (sample * shape.heads + head) * shape.sequence + queries.first;
  FinishSoftmax(queries.count, softmax.data(), reciprocals.data(), log_sum_exp);
  ScaleRows(queries.count, shape.head_size, reciprocals.data(), scratch.sums, width);
  StoreRows(shape, queries, scratch.sums, x.output + OutputAt(shape, sample, head),
            shape.heads * shape.head_size, 1);
}

/// Panels of one run of queries and one block of keys, and the gradients of all of a head's keys
/// and values.
struct BackwardScratch {
  float *key, *key_transposed, *value_transposed, *query, *output, *d_output, *d_query, *scores,
      *d_scores, *d_key, *d_value;

  static std::int64_t Size(const AttentionShape& shape) {
    return (3 * kKeys + 3 * kRows + kQueries + 2 * shape.sequence) * PanelSize(shape.head_size) +
           2 * kRows * kKeys;
  }
  BackwardScratch(const AttentionShape& shape, float* memory) {
    const std::int64_t width = PanelSize(shape.head_size);
    key = memory;
    key_transposed = key + kKeys * width;
    value_transposed = key_transposed + kKeys * width;
    query = value_transposed + kKeys * width;
    output = query + kRows * width;
    d_output = output + kRows * width;
    d_query = d_output + kRows * width;
    scores = d_query + kQueries * width;
    d_scores = scores + kRows * kKeys;
    d_key = d_scores + kRows * kKeys;
    d_value = d_key + shape.sequence * width;
  }
};

/// Adds what some rows of queries and a block of keys contribute to all gradients.
template <class T>
void BackwardRows(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t head,
                  const Range& rows, const Range& keys, const VisibleEntries& visible,
                  float* d_query, const BackwardScratch& scratch) {
  const AttentionShape& shape = x.shape;
  const std::int64_t width = PanelSize(shape.head_size), seen = visible.Of(rows.count - 1),
                     panel = PanelSize(seen);
  const std::int64_t outputs = OutputAt(shape, sample, head),
                     output_stride = shape.heads * shape.head_size;
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  CopyRows(shape, rows, of.query, of.stride, scratch.query, ScoreScale(shape));
  CopyRows(shape, rows, x.output + outputs, output_stride, scratch.output);
  CopyRows(shape, rows, x.d_output + outputs, output_stride, scratch.d_output);
  std::array<float, kRows> mean_d_p;
  DotRows(rows.count, shape.head_size, scratch.output, scratch.d_output, width, mean_d_p.data());
  Scores(shape, rows.count, panel, scratch.query, scratch.key_transposed, scratch.scores);
  Scores(shape, rows.count, panel, scratch.d_output, scratch.value_transposed, scratch.d_scores);
  SoftmaxGradientRows({rows.count, panel, kKeys, visible, scratch.scores},
                      x.log_sum_exp + (sample * shape.heads + head) * shape.sequence + rows.first,
                      mean_d_p.data(), scratch.d_scores);
  WeightedSums(shape, rows.count, seen, scratch.d_scores, scratch.key, d_query, keys.first > 0);
  // The panel of queries includes the scale of the scores, so the gradient of keys does too.
  AddTransposedSums(shape, rows.count, seen, scratch.d_scores, scratch.query,
                    scratch.d_key + keys.first * width);
  AddTransposedSums(shape, rows.count, seen, scratch.scores, scratch.d_output,
                    scratch.d_value + keys.first * width);
}

template <class T>
void BackwardQueries(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t head,
                     const Range& queries, const BackwardScratch& scratch) {
  const AttentionShape& shape = x.shape;
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  const Head<T> d_of = HeadAt(shape, x.d_qkv, sample, head);
  ForKeys(shape, queries, kKeys, [&](const Range& keys) {
    CopyRows(shape, keys, of.key, of.stride, scratch.key);
    TransposeKeys(shape, keys, of.key, of.stride, scratch.key_transposed);
    TransposeKeys(shape, keys, of.value, of.stride, scratch.value_transposed);
    ForRows(shape, queries, keys, kRows,
            [&](std::int64_t row, std::int64_t rows, const VisibleEntries& visible) {
              BackwardRows(x, sample, head, {queries.first + row, rows}, keys, visible,
                           scratch.d_query + row * PanelSize(shape.head_size), scratch);
            });
  });
  StoreRows(shape, queries, scratch.d_query, d_of.query, d_of.stride, ScoreScale(shape));
}

/// The gradients of a key and value head are sums over the query heads that use it, in ascending
/// order.
template <class T>
void BackwardHead(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t kv_head,
                  const BackwardScratch& scratch) {
  const AttentionShape& shape = x.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  std::fill_n(scratch.d_key, 2 * shape.sequence * PanelSize(shape.head_size), 0.0F);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t first = 0; first < shape.sequence; first += kQueries) {
      BackwardQueries(x, sample, head, {first, std::min(kQueries, shape.sequence - first)},
                      scratch);
    }
  }
  const Head<T> d_of = HeadAt(shape, x.d_qkv, sample, 0, kv_head);
  StoreRows(shape, {0, shape.sequence}, scratch.d_key, d_of.key, d_of.stride, 1);
  StoreRows(shape, {0, shape.sequence}, scratch.d_value, d_of.value, d_of.stride, 1);
}

}  // namespace

template <class T>
void CpuDevice<T>::Attention(const AttentionArguments<T>& x) {
  const AttentionShape& shape = x.shape;
  const std::int64_t per_thread =
      by_tiles_ ? TileAttentionScratch<T>(shape) : ForwardScratch::Size(shape);
  const std::int64_t most = by_tiles_ ? kTileQueries : kQueries,
                     runs = Pieces(shape.sequence, most);
  float* scratch = Scratch(pool_.threads() * per_thread);
  pool_.For(shape.batch * shape.heads * runs, [&](std::int64_t index, int thread) {
    const std::int64_t sample = index / runs / shape.heads, head = index / runs % shape.heads,
                       first = index % runs * most;
    const Range queries{first, std::min(most, shape.sequence - first)};
    float* memory = scratch + thread * per_thread;
    if (by_tiles_) return TileAttention(x, sample, head, queries, memory);
    ForwardQueries(x, sample, head, queries, ForwardScratch(shape, memory));
  });
}

template <class T>
void CpuDevice<T>::AttentionBackward(const AttentionBackwardArguments<T>& x) {
  const AttentionShape& shape = x.shape;
  const std::int64_t per_thread =
      by_tiles_ ? TileAttentionBackwardScratch<T>(shape) : BackwardScratch::Size(shape);
  float* scratch = Scratch(pool_.threads() * per_thread);
  pool_.For(shape.batch * shape.kv_heads, [&](std::int64_t index, int thread) {
    const std::int64_t sample = index / shape.kv_heads, kv_head = index % shape.kv_heads;
    float* memory = scratch + thread * per_thread;
    if (by_tiles_) return TileAttentionBackward(x, sample, kv_head, memory);
    BackwardHead(x, sample, kv_head, BackwardScratch(shape, memory));
  });
}

template void CpuDevice<float>::Attention(const AttentionArguments<float>&);
template void CpuDevice<BFloat16>::Attention(const AttentionArguments<BFloat16>&);
template void CpuDevice<Float16>::Attention(const AttentionArguments<Float16>&);
template void CpuDevice<float>::AttentionBackward(const AttentionBackwardArguments<float>&);
template void CpuDevice<BFloat16>::AttentionBackward(const AttentionBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::AttentionBackward(const AttentionBackwardArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
