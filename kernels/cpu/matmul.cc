// Matrix products, tile by tile through oneDNN; what follows a product is done to each tile while
// it is in the cache.
#include "kernels/matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_end.h"

namespace adaptive_train::kernels::cpu {
namespace {

// Tiles are chosen by shape alone. They are as small as oneDNN's speed allows, so that there are
// enough of them for many threads and what follows a product finds it in the cache; 192 is a
// multiple of its kernels' widths.
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 192;
constexpr std::int64_t kTileSize = kTileRows * kTileColumns;
static_assert(kColumnsPerPiece == kTileColumns, "sums down a panel's columns are one piece");

std::int64_t Pieces(std::int64_t count, std::int64_t piece) { return (count + piece - 1) / piece; }

struct Tile {
  std::int64_t row, rows, column, columns;
};

/// Calls body(tile, thread) for tiles that cover a matrix, those of a column one after the other.
template <class Body>
void ForTiles(ThreadPool& pool, std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t down = Pieces(rows, kTileRows), across = Pieces(columns, kTileColumns);
  pool.For(down * across, [&](std::int64_t index, int thread) {
    const std::int64_t row = index % down * kTileRows, column = index / down * kTileColumns;
    body(Tile{row, std::min(kTileRows, rows - row), column,
              std::min(kTileColumns, columns - column)},
         thread);
  });
}

/// How many floats of scratch memory an operand takes: none where it is used in its place.
template <class T>
std::int64_t FloatsOf(std::int64_t count) {
  return std::is_same_v<T, float> ? 0 : count;
}

/// The same `count` numbers in float32: in their own place, or in `scratch`.
template <class T>
const float* InFloat(ThreadPool& pool, std::int64_t count, const T* values, float* scratch) {
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    pool.ForPieces(count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
      Widen<T>(
          {.rows = 1, .columns = end - begin, .matrix = values + begin, .panel = scratch + begin});
    });
    return scratch;
  }
}

/// A product's second operand in float32, cut into a panel of rows kTileColumns apart for each
/// column of tiles. Every tile packs its panel anew: from rows side by side that costs oneDNN
/// least, whereas transposing, or rows a multiple of a page apart, would cost it up to a tenth of
/// its speed.
struct Panels {
  float* first;
  std::int64_t inner;

  static std::int64_t Size(std::int64_t inner, std::int64_t columns) {
    return Pieces(columns, kTileColumns) * kTileColumns * inner;
  }
  float* At(std::int64_t column) const { return first + column * inner; }
  Operand Of(const Tile& tile) const { return {At(tile.column), kTileColumns}; }
};

/// values is [inner, columns], or [columns, inner] if it is transposed.
template <class T>
Panels CutIntoPanels(ThreadPool& pool, std::int64_t inner, std::int64_t columns, const T* values,
                     bool transposed, float* scratch) {
  constexpr std::int64_t kInnerPerPiece = 128;
  const Panels panels{scratch, inner};
  const std::int64_t pieces = Pieces(inner, kInnerPerPiece);
  pool.For(Pieces(columns, kTileColumns) * pieces, [&](std::int64_t index, int) {
    const std::int64_t column = index / pieces * kTileColumns,
                       width = std::min(kTileColumns, columns - column),
                       k = index % pieces * kInnerPerPiece,
                       depth = std::min(kInnerPerPiece, inner - k);
    WidenArguments<T> copy{.panel = panels.At(column) + k * kTileColumns,
                           .panel_stride = kTileColumns};
    copy.rows = transposed ? width : depth;
    copy.columns = transposed ? depth : width;
    copy.matrix_stride = transposed ? inner : columns;
    copy.matrix = values + (transposed ? column * inner + k : k * columns + column);
    transposed ? WidenTransposed<T>(copy) : Widen<T>(copy);
  });
  return panels;
}

/// Computes one tile of a product whose operands are floats; `scratch` has room for a tile.
template <class T>
void MatmulTile(const MatmulArguments<T>& x, const float* a, const Panels& b, const Tile& tile,
                float* scratch) {
  const Operand of_a = x.transpose_a ? Operand{a + tile.row, x.rows, true}
                                     : Operand{a + tile.row * x.inner, x.inner};
  const std::int64_t at = tile.row * x.columns + tile.column;
  if constexpr (std::is_same_v<T, float>) {
    if (x.bias == nullptr && x.residual == nullptr && x.gelu == GeluForm::kNone)
      return Sgemm(tile.rows, tile.columns, x.inner, 1, of_a, b.Of(tile), 0, x.c + at, x.columns);
  }
  Sgemm(tile.rows, tile.columns, x.inner, 1, of_a, b.Of(tile), 0, scratch, kTileColumns);
  const auto moved = [](auto* pointer, std::int64_t by) {
    return pointer == nullptr ? nullptr : pointer + by;
  };
  FinishTile<T>({.rows = tile.rows,
                 .columns = tile.columns,
                 .tile = scratch,
                 .tile_stride = kTileColumns,
                 .stride = x.columns,
                 .bias = moved(x.bias, tile.column),
                 .residual = moved(x.residual, at),
                 .c = x.c + at,
                 .gelu = x.gelu,
                 .activated = moved(x.activated, at),
                 .gelu_input = moved(x.gelu_input, at)});
}

}  // namespace

template <class T>
void CpuDevice<T>::Matmul(const MatmulArguments<T>& x) {
  const std::int64_t size_a = x.rows * x.inner, size_tiles = pool_.threads() * kTileSize;
  float* tiles = Scratch(size_tiles + FloatsOf<T>(size_a) + Panels::Size(x.inner, x.columns));
  float* scratch_a = tiles + size_tiles;
  const float* a = InFloat(pool_, size_a, x.a, scratch_a);
  const Panels b =
      CutIntoPanels(pool_, x.inner, x.columns, x.b, x.transpose_b, scratch_a + FloatsOf<T>(size_a));
  ForTiles(pool_, x.rows, x.columns, [&](const Tile& tile, int thread) {
    MatmulTile(x, a, b, tile, tiles + thread * kTileSize);
  });
}

template <class T>
void CpuDevice<T>::WeightGradient(const WeightGradientArguments<T>& x) {
  const std::int64_t size_input = x.rows * x.in;
  float* scratch = Scratch(FloatsOf<T>(size_input) + Panels::Size(x.rows, x.out));
  const float* input = InFloat(pool_, size_input, x.input, scratch);
  const Panels d_output =
      CutIntoPanels(pool_, x.rows, x.out, x.d_output, false, scratch + FloatsOf<T>(size_input));
  ForTiles(pool_, x.in, x.out, [&](const Tile& tile, int) {
    Sgemm(tile.rows, tile.columns, x.rows, 1, {input + tile.row, x.in, true}, d_output.Of(tile), 1,
          x.d_weight + tile.row * x.out + tile.column, x.out);
  });
  if (x.d_bias == nullptr) return;
  pool_.ForPieces(x.out, kTileColumns, [&](std::int64_t begin, std::int64_t end) {
    AddColumns({x.rows, d_output.At(begin), kTileColumns, x.d_bias + begin}, 0, end - begin);
  });
}

template void CpuDevice<float>::Matmul(const MatmulArguments<float>&);
template void CpuDevice<BFloat16>::Matmul(const MatmulArguments<BFloat16>&);
template void CpuDevice<Float16>::Matmul(const MatmulArguments<Float16>&);
template void CpuDevice<float>::WeightGradient(const WeightGradientArguments<float>&);
template void CpuDevice<BFloat16>::WeightGradient(const WeightGradientArguments<BFloat16>&);
template void CpuDevice<Float16>::WeightGradient(const WeightGradientArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
