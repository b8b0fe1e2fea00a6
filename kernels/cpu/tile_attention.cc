// Attention block by block, as in attention.cc. Each block is packed once for a run of queries.
#include "kernels/cpu/tile_attention.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile_product.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kRows = 64;  // of scores at a time
constexpr std::int64_t kKeys = 256;
static_assert(kTileQueries % kRows == 0 && kRows % kTileDepth == 0 && kKeys % kTileDepth == 0,
              "what is packed for some rows or keys begins at whole tiles");
// Rows of scores that are a power of two apart would share a few sets of the cache.
constexpr std::int64_t kScoreStride = kKeys + 16;

/// TileProduct is fastest on whole blocks of 32 by 32 sums; all results below have room for them.
constexpr std::int64_t PaddedToBlocks(std::int64_t count) {
  constexpr std::int64_t kBlock = 2 * kTileSide;
  return (count + kBlock - 1) / kBlock * kBlock;
}

/// Hands a thread's scratch memory out piece by piece. Without memory it only adds sizes up.
struct ScratchPieces {
  float* memory;
  std::int64_t used = 0;

  float* Floats(std::int64_t count) {
    float* piece = memory == nullptr ? nullptr : memory + used;
    used += PanelSize(count);  // a multiple of 64 bytes
    return piece;
  }
  std::uint16_t* Tiles(std::int64_t lines, std::int64_t depth, int parts) {
    return reinterpret_cast<std::uint16_t*>(Floats(TilesSize(lines, depth, parts) / 2));
  }
};

/// Packs the rows `range` of one head's matrix as rows of a first operand. The product's inner
/// dimension is head_size.
template <class T>
void PackRows(const AttentionShape& shape, const Range& range, const T* matrix, std::int64_t stride,
              std::uint16_t* tiles) {
  PackFirstTiles<T>({.matrix = matrix + range.first * stride,
                     .stride = stride,
                     .lines = range.count,
                     .depth = shape.head_size},
                    tiles);
}

/// Packs them as columns of a second operand. The product's inner dimension is head_size.
template <class T>
void PackColumns(const AttentionShape& shape, const Range& range, const T* matrix,
                 std::int64_t stride, std::uint16_t* tiles) {
  PackSecondTiles<T>({.matrix = matrix + range.first * stride,
                      .stride = stride,
                      .lines = range.count,
                      .depth = shape.head_size},
                     tiles);
}

/// Packs them as rows of a second operand. The product's inner dimension is the range: its rows are
/// summed.
template <class T>
void PackAsInner(const AttentionShape& shape, const Range& range, const T* matrix,
                 std::int64_t stride, std::uint16_t* tiles) {
  PackSecondTiles<T>({.matrix = matrix + range.first * stride,
                      .stride = stride,
                      .along = false,
                      .lines = shape.head_size,
                      .depth = range.count},
                     tiles);
}

/// scores[rows, keys] = a b of packed rows and columns.
template <class T>
void Scores(const AttentionShape& shape, std::int64_t rows, std::int64_t keys,
            const std::uint16_t* a, const std::uint16_t* b, float* scores) {
  TileProduct({.rows = PaddedToBlocks(rows),
               .columns = PaddedToBlocks(keys),
               .inner = shape.head_size,
               .a = a,
               .a_parts = kTileParts<T>,
               .b = b,
               .b_parts = kTileParts<T>,
               .c = scores,
               .c_stride = kScoreStride});
}

/// Sums of the packed rows `summed`. The weights of a sum are a row of scores, or a column.
struct WeightedSums {
  bool columns = false;  // a sum for each column
  std::int64_t rows = 0, keys = 0;
  const float* scores = nullptr;
  const std::uint16_t* summed = nullptr;
  std::int64_t summed_depth = 0;  // that it was packed with
  float* sums = nullptr;          // rows of PaddedToBlocks(head_size)
  bool accumulate = false;
};

template <class T>
void AddWeighted(const AttentionShape& shape, const WeightedSums& x, std::uint16_t* tiles) {
  const std::int64_t lines = x.columns ? x.keys : x.rows, depth = x.columns ? x.rows : x.keys;
  PackFirstTiles<float>({.matrix = x.scores,
                         .stride = kScoreStride,
                         .along = !x.columns,
                         .lines = lines,
                         .depth = depth,
                         .parts = kTileParts<T>},
                        tiles);
  TileProduct({.rows = PaddedToBlocks(lines),
               .columns = PaddedToBlocks(shape.head_size),
               .inner = depth,
               .a = tiles,
               .a_parts = kTileParts<T>,
               .b = x.summed,
               .b_parts = kTileParts<T>,
               .c = x.sums,
               .c_stride = PaddedToBlocks(shape.head_size),
               .accumulate = x.accumulate,
               .b_depth = x.summed_depth});
}

/// Rows of float sums become rows of a matrix, times a factor.
template <class T>
void StoreSums(const AttentionShape& shape, const Range& range, const float* sums, T* matrix,
               std::int64_t stride, float factor) {
  Narrow<T>({.rows = range.count,
             .columns = shape.head_size,
             .matrix = matrix + range.first * stride,
             .matrix_stride = stride,
             .panel = const_cast<float*>(sums),
             .panel_stride = PaddedToBlocks(shape.head_size),
             .factor = factor});
}

template <class T>
struct ForwardScratch {
  std::uint16_t *query, *key, *value, *weights;
  float *scores, *sums;

  ForwardScratch(const AttentionShape& shape, ScratchPieces& pieces)
      : query(pieces.Tiles(kTileQueries, shape.head_size, kTileParts<T>)),
        key(pieces.Tiles(kKeys, shape.head_size, kTileParts<T>)),
        value(pieces.Tiles(shape.head_size, kKeys, kTileParts<T>)),
        weights(pieces.Tiles(kRows, kKeys, kTileParts<T>)),
        scores(pieces.Floats(kRows * kScoreStride)),
        sums(pieces.Floats(kTileQueries * PaddedToBlocks(shape.head_size))) {}
};

template <class T>
struct BackwardScratch {
  // First operands of all queries, and second operands of each kRows of them.
  std::uint16_t *query, *d_output, *query_summed, *d_output_summed;
  std::uint16_t *key, *value, *key_summed, *weights;
  float *scores, *d_scores, *output_row, *d_output_row, *mean_d_p, *d_query;
  float *d_key, *d_value;  // of the whole sequence

  BackwardScratch(const AttentionShape& shape, ScratchPieces& pieces)
      : query(pieces.Tiles(kTileQueries, shape.head_size, kTileParts<T>)),
        d_output(pieces.Tiles(kTileQueries, shape.head_size, kTileParts<T>)),
        query_summed(pieces.Tiles(shape.head_size, kTileQueries, kTileParts<T>)),
        d_output_summed(pieces.Tiles(shape.head_size, kTileQueries, kTileParts<T>)),
        key(pieces.Tiles(kKeys, shape.head_size, kTileParts<T>)),
        value(pieces.Tiles(kKeys, shape.head_size, kTileParts<T>)),
        key_summed(pieces.Tiles(shape.head_size, kKeys, kTileParts<T>)),
        weights(pieces.Tiles(kRows, kKeys, kTileParts<T>)),
        scores(pieces.Floats(kRows * kScoreStride)),
        d_scores(pieces.Floats(kRows * kScoreStride)),
        output_row(pieces.Floats(kRows * PanelSize(shape.head_size))),
        d_output_row(pieces.Floats(kRows * PanelSize(shape.head_size))),
        mean_d_p(pieces.Floats(kTileQueries)),
        d_query(pieces.Floats(kTileQueries * PaddedToBlocks(shape.head_size))),
        d_key(pieces.Floats(PaddedToBlocks(shape.sequence) * PaddedToBlocks(shape.head_size))),
        d_value(pieces.Floats(PaddedToBlocks(shape.sequence) * PaddedToBlocks(shape.head_size))) {}

  /// Where the second operand of the rows from `row` on is in query_summed and d_output_summed.
  static std::int64_t SummedOffset(const AttentionShape& shape, std::int64_t row) {
    return row / kRows * TilesSize(shape.head_size, kRows, kTileParts<T>);
  }
};

/// Packs a run of queries and their d_output, and computes mean_d_p of each row.
template <class T>
void PackQueries(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t head,
                 const Range& queries, const BackwardScratch<T>& scratch) {
  const AttentionShape& shape = x.shape;
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  const std::int64_t outputs = OutputAt(shape, sample, head), width = PanelSize(shape.head_size),
                     stride = shape.heads * shape.head_size;
  PackRows(shape, queries, of.query, of.stride, scratch.query);
  PackRows(shape, queries, x.d_output + outputs, stride, scratch.d_output);
  for (std::int64_t row = 0; row < queries.count; row += kRows) {
    const Range rows{queries.first + row, std::min(kRows, queries.count - row)};
    const std::int64_t summed = scratch.SummedOffset(shape, row);
    PackAsInner(shape, rows, of.query, of.stride, scratch.query_summed + summed);
    PackAsInner(shape, rows, x.d_output + outputs, stride, scratch.d_output_summed + summed);
    const auto widen = [&](const T* matrix, float* panel) {
      Widen<T>({.rows = rows.count,
                .columns = shape.head_size,
                .matrix = matrix + outputs + rows.first * stride,
                .matrix_stride = stride,
                .panel = panel,
                .panel_stride = width});
    };
    widen(x.output, scratch.output_row);
    widen(x.d_output, scratch.d_output_row);
    DotRows(rows.count, shape.head_size, scratch.output_row, scratch.d_output_row, width,
            scratch.mean_d_p + row);
  }
}

/// Adds what some rows of queries and a block of keys contribute to all gradients.
template <class T>
void BackwardRows(const AttentionShape& shape, std::int64_t row, std::int64_t rows,
                  const Range& keys, const VisibleEntries& visible, const float* log_sum_exp,
                  const BackwardScratch<T>& scratch) {
  const std::int64_t seen = visible.Of(rows - 1), width = PaddedToBlocks(shape.head_size);
  const std::int64_t packed = TilesSize(row, shape.head_size, kTileParts<T>),
                     summed = scratch.SummedOffset(shape, row);
  Scores<T>(shape, rows, seen, scratch.query + packed, scratch.key, scratch.scores);
  Scores<T>(shape, rows, seen, scratch.d_output + packed, scratch.value, scratch.d_scores);
  SoftmaxGradientRows(
      {rows, PaddedToBlocks(seen), kScoreStride, visible, scratch.scores, ScoreScale(shape)},
      log_sum_exp + row, scratch.mean_d_p + row, scratch.d_scores);
  AddWeighted<T>(shape,
                 {.rows = rows,
                  .keys = seen,
                  .scores = scratch.d_scores,
                  .summed = scratch.key_summed,
                  .summed_depth = keys.count,
                  .sums = scratch.d_query + row * width,
                  .accumulate = keys.first > 0},
                 scratch.weights);
  const auto add = [&](const float* weights, const std::uint16_t* of_rows, float* sums) {
    AddWeighted<T>(shape,
                   {.columns = true,
                    .rows = rows,
                    .keys = seen,
                    .scores = weights,
                    .summed = of_rows + summed,
                    .summed_depth = rows,
                    .sums = sums + keys.first * width,
                    .accumulate = true},
                   scratch.weights);
  };
  add(scratch.d_scores, scratch.query_summed, scratch.d_key);
  add(scratch.scores, scratch.d_output_summed, scratch.d_value);
}

template <class T>
void BackwardQueries(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t head,
                     const Range& queries, const BackwardScratch<T>& scratch) {
  const AttentionShape& shape = x.shape;
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  const Head<T> d_of = HeadAt(shape, x.d_qkv, sample, head);
  const float* log_sum_exp =
      x.log_sum_exp + (sample * shape.heads + head) * shape.sequence + queries.first;
  PackQueries(x, sample, head, queries, scratch);
  ForKeys(shape, queries, kKeys, [&](const Range& keys) {
    PackColumns(shape, keys, of.key, of.stride, scratch.key);
    PackColumns(shape, keys, of.value, of.stride, scratch.value);
    PackAsInner(shape, keys, of.key, of.stride, scratch.key_summed);
    ForRows(shape, queries, keys, kRows,
            [&](std::int64_t row, std::int64_t rows, const VisibleEntries& visible) {
              BackwardRows(shape, row, rows, keys, visible, log_sum_exp, scratch);
            });
  });
  StoreSums(shape, queries, scratch.d_query, d_of.query, d_of.stride, ScoreScale(shape));
}

}  // namespace

template <class T>
std::int64_t TileAttentionScratch(const AttentionShape& shape) {
  ScratchPieces pieces{nullptr};
  ForwardScratch<T>(shape, pieces);
  return pieces.used;
}

template <class T>
std::int64_t TileAttentionBackwardScratch(const AttentionShape& shape) {
  ScratchPieces pieces{nullptr};
  BackwardScratch<T>(shape, pieces);
  return pieces.used;
}

template <class T>
void TileAttention(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                   const Range& queries, float* scratch_memory) {
  const AttentionShape& shape = x.shape;
  ScratchPieces pieces{scratch_memory};
  const ForwardScratch<T> scratch(shape, pieces);
  const std::int64_t width = PaddedToBlocks(shape.head_size);
  const Head<const T> of = HeadAt(shape, x.qkv, sample, head);
  std::array<RunningSoftmax, kTileQueries> softmax;
  PackRows(shape, queries, of.query, of.stride, scratch.query);
  ForKeys(shape, queries, kKeys, [&](const Range& keys) {
    PackColumns(shape, keys, of.key, of.stride, scratch.key);
    PackAsInner(shape, keys, of.value, of.stride, scratch.value);
    ForRows(shape, queries, keys, kRows,
            [&](std::int64_t row, std::int64_t rows, const VisibleEntries& visible) {
              const std::int64_t seen = visible.Of(rows - 1);
              std::array<float, kRows> factors;
              Scores<T>(shape, rows, seen,
                        scratch.query + TilesSize(row, shape.head_size, kTileParts<T>), scratch.key,
                        scratch.scores);
              ExponentialRows({rows, PaddedToBlocks(seen), kScoreStride, visible, scratch.scores,
                               ScoreScale(shape)},
                              &softmax[static_cast<std::size_t>(row)], factors.data());
              float* sums = scratch.sums + row * width;
              if (keys.first > 0) ScaleRows(rows, shape.head_size, factors.data(), sums, width);
              AddWeighted<T>(shape,
                             {.rows = rows,
                              .keys = seen,
                              .scores = scratch.scores,
                              .summed = scratch.value,
                              .summed_depth = keys.count,
                              .sums = sums,
                              .accumulate = keys.first > 0},
                             scratch.weights);
            });
  });
  std::array<float, kTileQueries> reciprocals;
  float* log_sum_exp =
      x.log_sum_exp + (sample * shape.heads + head) * shape.sequence + queries.first;
  FinishSoftmax(queries.count, softmax.data(), reciprocals.data(), log_sum_exp);
  ScaleRows(queries.count, shape.head_size, reciprocals.data(), scratch.sums, width);
  StoreSums(shape, queries, scratch.sums, x.output + OutputAt(shape, sample, head),
            shape.heads * shape.head_size, 1);
}

template <class T>
void TileAttentionBackward(const AttentionBackwardArguments<T>& x, std::int64_t sample,
                           std::int64_t kv_head, float* scratch_memory) {
  const AttentionShape& shape = x.shape;
  ScratchPieces pieces{scratch_memory};
  const BackwardScratch<T> scratch(shape, pieces);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (float* sums : {scratch.d_key, scratch.d_value})
    std::fill_n(sums, PaddedToBlocks(shape.sequence) * PaddedToBlocks(shape.head_size), 0.0F);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t first = 0; first < shape.sequence; first += kTileQueries) {
      BackwardQueries(x, sample, head, {first, std::min(kTileQueries, shape.sequence - first)},
                      scratch);
    }
  }
  const Head<T> d_of = HeadAt(shape, x.d_qkv, sample, 0, kv_head);
  const Range all{0, shape.sequence};
  StoreSums(shape, all, scratch.d_key, d_of.key, d_of.stride, ScoreScale(shape));
  StoreSums(shape, all, scratch.d_value, d_of.value, d_of.stride, 1);
}

template std::int64_t TileAttentionScratch<float>(const AttentionShape&);
template std::int64_t TileAttentionScratch<BFloat16>(const AttentionShape&);
template std::int64_t TileAttentionScratch<Float16>(const AttentionShape&);
template std::int64_t TileAttentionBackwardScratch<float>(const AttentionShape&);
template std::int64_t TileAttentionBackwardScratch<BFloat16>(const AttentionShape&);
template std::int64_t TileAttentionBackwardScratch<Float16>(const AttentionShape&);
template void TileAttention<float>(const AttentionArguments<float>&, std::int64_t, std::int64_t,
                                   const Range&, float*);
template void TileAttention<BFloat16>(const AttentionArguments<BFloat16>&, std::int64_t,
                                      std::int64_t, const Range&, float*);
template void TileAttention<Float16>(const AttentionArguments<Float16>&, std::int64_t, std::int64_t,
                                     const Range&, float*);
template void TileAttentionBackward<float>(const AttentionBackwardArguments<float>&, std::int64_t,
                                           std::int64_t, float*);
template void TileAttentionBackward<BFloat16>(const AttentionBackwardArguments<BFloat16>&,
                                              std::int64_t, std::int64_t, float*);
template void TileAttentionBackward<Float16>(const AttentionBackwardArguments<Float16>&,
                                             std::int64_t, std::int64_t, float*);

}  // namespace adaptive_train::kernels::cpu
