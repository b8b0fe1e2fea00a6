// Matrix products, tile by tile through oneDNN, and bias gradients.
#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/thread_pool.h"

namespace adaptive_train::kernels::cpu {
namespace {

// Tiles are chosen by shape alone. Rows of a tile are enough for oneDNN to reach its speed; columns
// are cut only where there are few tiles of rows, since every cut packs the other operand once
// more.
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kFewRowTiles = 8;

constexpr std::int64_t kColumnsPerPiece = 64;

void MatmulTile(const MatmulArguments<float>& x, std::int64_t row, std::int64_t rows,
                std::int64_t column, std::int64_t columns) {
  const Operand a =
      x.transpose_a ? Operand{x.a + row, x.rows, true} : Operand{x.a + row * x.inner, x.inner};
  const Operand b = x.transpose_b ? Operand{x.b + column * x.inner, x.inner, true}
                                  : Operand{x.b + column, x.columns};
  float* c = x.c + row * x.columns + column;
  Sgemm(rows, columns, x.inner, 1, a, b, x.accumulate ? 1.0F : 0.0F, c, x.columns);
  if (x.bias == nullptr) return;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) c[i * x.columns + j] += x.bias[column + j];
  }
}

}  // namespace

void CpuDevice::Matmul(const MatmulArguments<float>& x) {
  const std::int64_t row_tiles = (x.rows + kTileRows - 1) / kTileRows;
  const std::int64_t tile_columns =
      row_tiles < kFewRowTiles ? kTileColumns : std::max<std::int64_t>(x.columns, 1);
  const std::int64_t column_tiles = (x.columns + tile_columns - 1) / tile_columns;
  pool_.For(row_tiles * column_tiles, [&](std::int64_t tile, int) {
    const std::int64_t row = tile / column_tiles * kTileRows,
                       column = tile % column_tiles * tile_columns;
    MatmulTile(x, row, std::min(kTileRows, x.rows - row), column,
               std::min(tile_columns, x.columns - column));
  });
}

void CpuDevice::BiasBackward(const BiasBackwardArguments<float>& x) {
  pool_.ForPieces(x.columns, kColumnsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    float sums[kColumnsPerPiece] = {};
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const float* d_output = x.d_output + row * x.columns + begin;
      for (std::int64_t i = 0; i < end - begin; ++i) sums[i] += d_output[i];
    }
    for (std::int64_t i = begin; i < end; ++i) x.d_bias[i] += sums[i - begin];
  });
}

}  // namespace adaptive_train::kernels::cpu
