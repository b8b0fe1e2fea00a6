// Blocks of 32 by 32 sums. Intrinsics are used, since Highway does not cover what multiplies tiles.
#include "kernels/cpu/tile_product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/tile_instructions.h"

namespace adaptive_train::kernels::cpu {

#if defined(ADAPTIVE_TRAIN_TILES)
namespace {

constexpr int kMostParts = 3;
constexpr unsigned kHighHalf = 0xffff0000;

template <class T>
TILE_TARGET inline Floats Widened(const T* from, Mask mask) {
  if constexpr (std::is_same_v<T, float>) {
    return _mm512_maskz_loadu_ps(mask, from);
  } else {
    const Halves half = _mm256_maskz_loadu_epi16(mask, from);
    if constexpr (std::is_same_v<T, Float16>) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
}

TILE_TARGET inline Mask FirstLanes(std::int64_t count) {
  return static_cast<Mask>(count >= kTileSide ? 0xffffu : count <= 0 ? 0 : (1u << count) - 1);
}

/// What of x the next part holds, as a float. The last one holds all that is left, and keeps what
/// is no number.
TILE_TARGET inline Floats Part(Floats x, bool last) {
  Words bits = _mm512_castps_si512(x);
  if (!last) bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(
      _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(kHighHalf))));
}

/// A pair in all lanes.
TILE_TARGET inline Pairs Broadcast(const std::uint16_t* pair) {
  int bits;
  __builtin_memcpy(&bits, pair, sizeof bits);
  return AsPairs(_mm512_set1_epi32(bits));
}

TILE_TARGET inline Words Joined(Halves low, Halves high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/// Writes row `row` of kParts tiles: lane i holds the i-th numbers of `low` and `high`, `low` in
/// the low half. Both operands pair k with k + 16. A single part is rounded.
template <int kParts>
TILE_TARGET inline void StorePairs(Floats low, Floats high, std::int64_t row,
                                   std::uint16_t* tiles) {
  if constexpr (kParts == 1) {
    _mm512_store_si512(tiles + row * kTileDepth, Joined(AsHalves(_mm512_cvtneps_pbh(low)),
                                                        AsHalves(_mm512_cvtneps_pbh(high))));
    return;
  }
#pragma GCC unroll 3
  for (int part = 0; part < kParts; ++part) {
    const bool last = part == kParts - 1;
    const Floats low_part = Part(low, last), high_part = Part(high, last);
    _mm512_store_si512(tiles + part * kTileSize + row * kTileDepth,
                       _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low_part), 16),
                                       _mm512_castps_si512(high_part)));
    low = _mm512_sub_ps(low, low_part);
    high = _mm512_sub_ps(high, high_part);
  }
}

/// The same of 16 numbers each from memory.
template <class T, int kParts>
TILE_TARGET inline void StorePairs(const T* low, Mask of_low, const T* high, Mask of_high,
                                   std::int64_t row, std::uint16_t* tiles) {
  if constexpr (std::is_same_v<T, BFloat16> && kParts == 1) {
    _mm512_store_si512(tiles + row * kTileDepth, Joined(_mm256_maskz_loadu_epi16(of_low, low),
                                                        _mm256_maskz_loadu_epi16(of_high, high)));
  } else {
    StorePairs<kParts>(Widened(low, of_low), Widened(high, of_high), row, tiles);
  }
}

/// Transposes a tile of 16 rows of 16 pairs.
TILE_TARGET void TransposeTile(std::uint16_t* tile) {
  Words r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + i * kTileDepth);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(tile + i * kTileDepth, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_store_si512(tile + (i + 4) * kTileDepth,
                       _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_store_si512(tile + (i + 8) * kTileDepth, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    _mm512_store_si512(tile + (i + 12) * kTileDepth,
                       _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

/// Prefetches 16 numbers: a matrix's rows are too far apart for the hardware prefetcher. They go to
/// the second-level cache only; on Zen 4 a step was longer with the first-level cache.
template <class T>
TILE_TARGET inline void Prefetch(const T* from) {
  __builtin_prefetch(from, 0, 2);
}

/// Packs the tiles of up to 16 lines and 32 of k. A tile row is a line or a pair of k, depending on
/// how the matrix is stored. The input of tiles to come in that direction is prefetched.
template <class T, int kParts>
TILE_TARGET void PackTiles(const TilePackArguments<T>& x, std::int64_t line, std::int64_t k,
                           std::uint16_t* tiles) {
  const std::int64_t lines = x.lines - line, depth = x.depth - k;
  if (x.along) {
    const T* from = x.matrix + line * x.stride + k;
    const Mask low = FirstLanes(depth), high = FirstLanes(depth - kTileSide);
    for (std::int64_t i = 0; i < kTileSide; ++i) {
      const bool inside = i < lines;
      const T* row = from + (inside ? i * x.stride : 0);
      Prefetch(row + 2 * kTileSide * x.stride);
      Prefetch(row + 2 * kTileSide * x.stride + kTileSide);
      StorePairs<T, kParts>(row, inside ? low : 0, row + kTileSide, inside ? high : 0, i, tiles);
    }
  } else {
    const T* from = x.matrix + k * x.stride + line;
    const Mask lanes = FirstLanes(lines);
    for (std::int64_t i = 0; i < kTileSide; ++i) {
      const T *low = from + i * x.stride, *high = low + kTileSide * x.stride;
      Prefetch(low + kTileDepth * x.stride);
      Prefetch(high + kTileDepth * x.stride);
      StorePairs<T, kParts>(low, i < depth ? lanes : 0, high, i + kTileSide < depth ? lanes : 0, i,
                            tiles);
    }
  }
}

/// Packs tiles whose rows are lines if `rows_are_lines` (a first operand), else pairs of k.
template <class T, int kParts>
TILE_TARGET void PackParts(const TilePackArguments<T>& x, bool rows_are_lines,
                           std::uint16_t* tiles) {
  const std::int64_t steps = (x.depth + kTileDepth - 1) / kTileDepth,
                     blocks = (x.lines + 2 * kTileSide - 1) / (2 * kTileSide) * 2;
  for (std::int64_t index = 0; index < steps * blocks; ++index) {
    const std::int64_t block = x.along ? index / steps : index % blocks,
                       step = x.along ? index % steps : index / blocks;
    std::uint16_t* to = tiles + (block * steps + step) * kParts * kTileSize;
    PackTiles<T, kParts>(x, block * kTileSide, step * kTileDepth, to);
    if (x.along == rows_are_lines) continue;
    for (int part = 0; part < kParts; ++part) TransposeTile(to + part * kTileSize);
  }
}

template <class T>
void Pack(const TilePackArguments<T>& x, bool rows_are_lines, std::uint16_t* tiles) {
  switch (x.parts) {
    case 1:
      return PackParts<T, 1>(x, rows_are_lines, tiles);
    case 2:
      return PackParts<T, 2>(x, rows_are_lines, tiles);
    default:
      return PackParts<T, kMostParts>(x, rows_are_lines, tiles);
  }
}

constexpr std::int64_t kBlock = 2 * kTileSide;

void CopyBlock(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_stride, columns, to + row * to_stride);
}

/// Two blocks of 16 lines of an operand, `block` apart.
struct BlockOperand {
  const std::uint16_t* tiles;
  std::int64_t block;
};

/// The sums of [32, 32].
struct BlockSums {
  float* c;
  std::int64_t stride;
  bool accumulate;
};

/// Tiles 0 to 3 hold sums, 4 and 5 the first operand, 6 and 7 the second. All have 16 rows of 64
/// bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Sums [32, 32] over `steps` times 32 of k.
template <int kAParts, int kBParts>
AMX_TARGET void MatrixBlock(const BlockOperand& first, const BlockOperand& second,
                            std::int64_t steps, const BlockSums& to) {
  const auto [a_tiles, a_block] = first;
  const auto [b_tiles, b_block] = second;
  const auto [c, c_stride, accumulate] = to;
  const std::uint16_t *a = a_tiles, *b = b_tiles;
  constexpr int kRowBytes = 64;
  const auto c_bytes = static_cast<int>(c_stride * static_cast<std::int64_t>(sizeof(float)));
  float* lower = c + kTileSide * c_stride;
  if (accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kTileSide, c_bytes);
    _tile_loadd(2, lower, c_bytes);
    _tile_loadd(3, lower + kTileSide, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 3
    for (int i = 0; i < kAParts; ++i) {
      _tile_loadd(4, a + i * kTileSize, kRowBytes);
      _tile_loadd(5, a + a_block + i * kTileSize, kRowBytes);
#pragma GCC unroll 3
      for (int j = 0; j < kBParts; ++j) {
        if (i + j >= kMostParts) continue;
        _tile_loadd(6, b + j * kTileSize, kRowBytes);
        _tile_loadd(7, b + b_block + j * kTileSize, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    a += kAParts * kTileSize;
    b += kBParts * kTileSize;
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kTileSide, c_bytes);
  _tile_stored(2, lower, c_bytes);
  _tile_stored(3, lower + kTileSide, c_bytes);
}

/// Rows of sums that stay in registers. With two vectors each they hide what a product takes.
constexpr int kVectorRows = 8;

/// Sums of kVectorRows rows by 32 columns. A tile's row of the second operand is a vector of pairs;
/// those of the first are broadcast.
TILE_TARGET inline void VectorRows(const std::uint16_t* a, const BlockOperand& second,
                                   std::int64_t steps, const BlockSums& to) {
  const std::uint16_t *b = second.tiles, *const b_right = b + second.block;
  Floats left[kVectorRows], right[kVectorRows];
#pragma GCC unroll 8
  for (int row = 0; row < kVectorRows; ++row) {
    const float* from = to.c + row * to.stride;
    left[row] = to.accumulate ? _mm512_loadu_ps(from) : _mm512_setzero_ps();
    right[row] = to.accumulate ? _mm512_loadu_ps(from + kTileSide) : _mm512_setzero_ps();
    // The next rows of sums are too far apart for the hardware prefetcher.
    __builtin_prefetch(from + kVectorRows * to.stride, 1);
    __builtin_prefetch(from + kVectorRows * to.stride + kTileSide, 1);
  }
  for (std::int64_t step = 0; step < steps; ++step, a += kTileSize) {
    for (std::int64_t pair = 0; pair < kTileSide; ++pair) {
      const std::int64_t at = step * kTileSize + pair * kTileDepth;
      const Pairs of_left = AsPairs(_mm512_load_si512(b + at)),
                  of_right = AsPairs(_mm512_load_si512(b_right + at));
#pragma GCC unroll 8
      for (int row = 0; row < kVectorRows; ++row) {
        const Pairs all = Broadcast(a + row * kTileDepth + 2 * pair);
        left[row] = _mm512_dpbf16_ps(left[row], all, of_left);
        right[row] = _mm512_dpbf16_ps(right[row], all, of_right);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kVectorRows; ++row) {
    _mm512_storeu_ps(to.c + row * to.stride, left[row]);
    _mm512_storeu_ps(to.c + row * to.stride + kTileSide, right[row]);
  }
}

/// The same of operands of one part.
TILE_TARGET void VectorBlock(const BlockOperand& first, const BlockOperand& second,
                             std::int64_t steps, const BlockSums& to) {
  for (std::int64_t row = 0; row < kBlock; row += kVectorRows) {
    const std::uint16_t* a =
        first.tiles + row / kTileSide * first.block + row % kTileSide * kTileDepth;
    VectorRows(a, second, steps, {to.c + row * to.stride, to.stride, to.accumulate});
  }
}

using BlockFunction = void (*)(const BlockOperand&, const BlockOperand&, std::int64_t,
                               const BlockSums&);

/// Block by block. What is not whole is computed beside its place.
void MultiplyBlocks(const TileProductArguments& x, BlockFunction multiply) {
  const std::int64_t steps = (x.inner + kTileDepth - 1) / kTileDepth;
  const std::int64_t b_steps = x.b_depth > 0 ? (x.b_depth + kTileDepth - 1) / kTileDepth : steps;
  const std::int64_t a_block = steps * x.a_parts * kTileSize,
                     b_block = b_steps * x.b_parts * kTileSize;
  alignas(64) float partial[kBlock * kBlock];
  for (std::int64_t column = 0; column < x.columns; column += kBlock) {
    const BlockOperand b{x.b + column / kTileSide * b_block, b_block};
    const std::int64_t columns = std::min(kBlock, x.columns - column);
    for (std::int64_t row = 0; row < x.rows; row += kBlock) {
      const BlockOperand a{x.a + row / kTileSide * a_block, a_block};
      const std::int64_t rows = std::min(kBlock, x.rows - row);
      float* c = x.c + row * x.c_stride + column;
      if (rows == kBlock && columns == kBlock) {
        multiply(a, b, steps, {c, x.c_stride, x.accumulate});
      } else {
        if (x.accumulate) CopyBlock(c, x.c_stride, partial, kBlock, rows, columns);
        multiply(a, b, steps, {partial, kBlock, x.accumulate});
        CopyBlock(partial, kBlock, c, x.c_stride, rows, columns);
      }
    }
  }
}

/// [parts of a - 1][parts of b - 1]
constexpr BlockFunction kMatrixBlocks[kMostParts][kMostParts] = {
    {MatrixBlock<1, 1>, MatrixBlock<1, 2>, MatrixBlock<1, 3>},
    {MatrixBlock<2, 1>, MatrixBlock<2, 2>, MatrixBlock<2, 3>},
    {MatrixBlock<3, 1>, MatrixBlock<3, 2>, MatrixBlock<3, 3>}};

AMX_TARGET void MultiplyByMatrixUnit(const TileProductArguments& x) {
  const TileShapes shapes;
  _tile_loadconfig(&shapes);
  MultiplyBlocks(x, kMatrixBlocks[x.a_parts - 1][x.b_parts - 1]);
  // The next thread on this processor then need not have the tiles saved.
  _tile_release();
}

}  // namespace

TileUnit TileUnitHere() {
  if (MatrixUnitAvailable()) return TileUnit::kMatrix;
  return VectorsAvailable() ? TileUnit::kVectors : TileUnit::kNone;
}

template <class T>
void PackFirstTiles(const TilePackArguments<T>& x, std::uint16_t* tiles) {
  Pack(x, true, tiles);
}
template <class T>
void PackSecondTiles(const TilePackArguments<T>& x, std::uint16_t* tiles) {
  Pack(x, false, tiles);
}

void TileProduct(const TileProductArguments& x) {
  const bool several_parts = x.a_parts > 1 || x.b_parts > 1;
  if (several_parts || MatrixUnitAvailable()) return MultiplyByMatrixUnit(x);
  MultiplyBlocks(x, VectorBlock);
}
#else
TileUnit TileUnitHere() { return TileUnit::kNone; }

template <class T>
void PackFirstTiles(const TilePackArguments<T>&, std::uint16_t*) {}
template <class T>
void PackSecondTiles(const TilePackArguments<T>&, std::uint16_t*) {}

void TileProduct(const TileProductArguments&) {}
#endif

template void PackFirstTiles<float>(const TilePackArguments<float>&, std::uint16_t*);
template void PackFirstTiles<BFloat16>(const TilePackArguments<BFloat16>&, std::uint16_t*);
template void PackFirstTiles<Float16>(const TilePackArguments<Float16>&, std::uint16_t*);
template void PackSecondTiles<float>(const TilePackArguments<float>&, std::uint16_t*);
template void PackSecondTiles<BFloat16>(const TilePackArguments<BFloat16>&, std::uint16_t*);
template void PackSecondTiles<Float16>(const TilePackArguments<Float16>&, std::uint16_t*);

}  // namespace adaptive_train::kernels::cpu
