// Tiles of 16 by 16 sums, two by two. Intrinsics are used, since Highway does not cover tiles.
#include "kernels/cpu/amx_product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/amx_instructions.h"

namespace adaptive_train::kernels::cpu {

#if defined(ADAPTIVE_TRAIN_AMX)
namespace {

constexpr int kMostParts = 3;
constexpr unsigned kHighHalf = 0xffff0000;

template <class T>
AMX_TARGET inline Floats Widened(const T* from, Mask mask) {
  if constexpr (std::is_same_v<T, float>) {
    return _mm512_maskz_loadu_ps(mask, from);
  } else {
    const Halves half = _mm256_maskz_loadu_epi16(mask, from);
    if constexpr (std::is_same_v<T, Float16>) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
}

AMX_TARGET inline Mask FirstLanes(std::int64_t count) {
  return static_cast<Mask>(count >= kAmxSide ? 0xffffu : count <= 0 ? 0 : (1u << count) - 1);
}

/// What of x the next part holds, as a float. The last one holds all that is left, and keeps what
/// is no number.
AMX_TARGET inline Floats Part(Floats x, bool last) {
  Words bits = _mm512_castps_si512(x);
  if (!last) bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(
      _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(kHighHalf))));
}

/// Writes row `row` of kParts tiles: lane i holds the i-th numbers of `low` and `high`, `low` in
/// the low half. Both operands pair k with k + 16.
template <int kParts>
AMX_TARGET inline void StorePairs(Floats low, Floats high, std::int64_t row, std::uint16_t* tiles) {
#pragma GCC unroll 3
  for (int part = 0; part < kParts; ++part) {
    const bool last = part == kParts - 1;
    const Floats low_part = Part(low, last), high_part = Part(high, last);
    _mm512_store_si512(tiles + part * kAmxTile + row * kAmxDepth,
                       _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low_part), 16),
                                       _mm512_castps_si512(high_part)));
    low = _mm512_sub_ps(low, low_part);
    high = _mm512_sub_ps(high, high_part);
  }
}

/// Transposes a tile of 16 rows of 16 pairs.
AMX_TARGET void TransposeTile(std::uint16_t* tile) {
  Words r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + i * kAmxDepth);
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
    _mm512_store_si512(tile + i * kAmxDepth, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_store_si512(tile + (i + 4) * kAmxDepth, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_store_si512(tile + (i + 8) * kAmxDepth, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    _mm512_store_si512(tile + (i + 12) * kAmxDepth,
                       _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

/// Prefetches 16 numbers to the first-level cache: a matrix's rows are too far apart for the
/// hardware prefetcher.
template <class T>
AMX_TARGET inline void Prefetch(const T* from) {
  __builtin_prefetch(from);
}

/// Packs the tiles of up to 16 lines and 32 of k. A tile row is a line or a pair of k, depending on
/// how the matrix is stored. The input of the next tiles in that direction is prefetched.
template <class T, int kParts>
AMX_TARGET void PackTiles(const AmxPackArguments<T>& x, std::int64_t line, std::int64_t k,
                          std::uint16_t* tiles) {
  const std::int64_t lines = x.lines - line, depth = x.depth - k;
  if (x.along) {
    const T* from = x.matrix + line * x.stride + k;
    const Mask low = FirstLanes(depth), high = FirstLanes(depth - kAmxSide);
    for (std::int64_t i = 0; i < kAmxSide; ++i) {
      const bool inside = i < lines;
      const T* row = from + (inside ? i * x.stride : 0);
      Prefetch(row + kAmxSide * x.stride);
      Prefetch(row + kAmxSide * x.stride + kAmxSide);
      StorePairs<kParts>(Widened(row, inside ? low : 0), Widened(row + kAmxSide, inside ? high : 0),
                         i, tiles);
    }
  } else {
    const T* from = x.matrix + k * x.stride + line;
    const Mask lanes = FirstLanes(lines);
    for (std::int64_t i = 0; i < kAmxSide; ++i) {
      const T *low = from + i * x.stride, *high = low + kAmxSide * x.stride;
      Prefetch(low + kAmxDepth * x.stride);
      Prefetch(high + kAmxDepth * x.stride);
      StorePairs<kParts>(Widened(low, i < depth ? lanes : 0),
                         Widened(high, i + kAmxSide < depth ? lanes : 0), i, tiles);
    }
  }
}

/// Packs tiles whose rows are lines if `rows_are_lines` (a first operand), else pairs of k.
template <class T, int kParts>
AMX_TARGET void PackParts(const AmxPackArguments<T>& x, bool rows_are_lines, std::uint16_t* tiles) {
  const std::int64_t steps = (x.depth + kAmxDepth - 1) / kAmxDepth,
                     blocks = (x.lines + 2 * kAmxSide - 1) / (2 * kAmxSide) * 2;
  for (std::int64_t index = 0; index < steps * blocks; ++index) {
    const std::int64_t block = x.along ? index / steps : index % blocks,
                       step = x.along ? index % steps : index / blocks;
    std::uint16_t* to = tiles + (block * steps + step) * kParts * kAmxTile;
    PackTiles<T, kParts>(x, block * kAmxSide, step * kAmxDepth, to);
    if (x.along == rows_are_lines) continue;
    for (int part = 0; part < kParts; ++part) TransposeTile(to + part * kAmxTile);
  }
}

template <class T>
void Pack(const AmxPackArguments<T>& x, bool rows_are_lines, std::uint16_t* tiles) {
  switch (x.parts) {
    case 1:
      return PackParts<T, 1>(x, rows_are_lines, tiles);
    case 2:
      return PackParts<T, 2>(x, rows_are_lines, tiles);
    default:
      return PackParts<T, kMostParts>(x, rows_are_lines, tiles);
  }
}

/// Tiles 0 to 3 hold sums, 4 and 5 the first operand, 6 and 7 the second. All have 16 rows of 64
/// bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Sums [32, 32] over `steps` times 32 of k.
template <int kAParts, int kBParts>
AMX_TARGET inline void Block(const std::uint16_t* a, std::int64_t a_block, const std::uint16_t* b,
                             std::int64_t b_block, std::int64_t steps, float* c,
                             std::int64_t c_stride, bool accumulate) {
  constexpr int kRowBytes = 64;
  const auto c_bytes = static_cast<int>(c_stride * static_cast<std::int64_t>(sizeof(float)));
  float* lower = c + kAmxSide * c_stride;
  if (accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kAmxSide, c_bytes);
    _tile_loadd(2, lower, c_bytes);
    _tile_loadd(3, lower + kAmxSide, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 3
    for (int i = 0; i < kAParts; ++i) {
      _tile_loadd(4, a + i * kAmxTile, kRowBytes);
      _tile_loadd(5, a + a_block + i * kAmxTile, kRowBytes);
#pragma GCC unroll 3
      for (int j = 0; j < kBParts; ++j) {
        if (i + j >= kMostParts) continue;
        _tile_loadd(6, b + j * kAmxTile, kRowBytes);
        _tile_loadd(7, b + b_block + j * kAmxTile, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    a += kAParts * kAmxTile;
    b += kBParts * kAmxTile;
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kAmxSide, c_bytes);
  _tile_stored(2, lower, c_bytes);
  _tile_stored(3, lower + kAmxSide, c_bytes);
}

constexpr std::int64_t kBlock = 2 * kAmxSide;

void CopyBlock(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_stride, columns, to + row * to_stride);
}

template <int kAParts, int kBParts>
AMX_TARGET void MultiplyParts(const AmxProductArguments& x) {
  const TileShapes shapes;
  _tile_loadconfig(&shapes);
  const std::int64_t steps = (x.inner + kAmxDepth - 1) / kAmxDepth;
  const std::int64_t b_steps = x.b_depth > 0 ? (x.b_depth + kAmxDepth - 1) / kAmxDepth : steps;
  const std::int64_t a_block = steps * kAParts * kAmxTile, b_block = b_steps * kBParts * kAmxTile;
  alignas(64) float partial[kBlock * kBlock];
  for (std::int64_t column = 0; column < x.columns; column += kBlock) {
    const std::uint16_t* b = x.b + column / kAmxSide * b_block;
    const std::int64_t columns = std::min(kBlock, x.columns - column);
    for (std::int64_t row = 0; row < x.rows; row += kBlock) {
      const std::uint16_t* a = x.a + row / kAmxSide * a_block;
      const std::int64_t rows = std::min(kBlock, x.rows - row);
      float* c = x.c + row * x.c_stride + column;
      if (rows == kBlock && columns == kBlock) {
        Block<kAParts, kBParts>(a, a_block, b, b_block, steps, c, x.c_stride, x.accumulate);
      } else {
        if (x.accumulate) CopyBlock(c, x.c_stride, partial, kBlock, rows, columns);
        Block<kAParts, kBParts>(a, a_block, b, b_block, steps, partial, kBlock, x.accumulate);
        CopyBlock(partial, kBlock, c, x.c_stride, rows, columns);
      }
    }
  }
  // The next thread on this processor then need not have the tiles saved.
  _tile_release();
}

using ProductFunction = void (*)(const AmxProductArguments&);
constexpr ProductFunction kProductFunctions[kMostParts][kMostParts] = {
    {MultiplyParts<1, 1>, MultiplyParts<1, 2>, MultiplyParts<1, 3>},
    {MultiplyParts<2, 1>, MultiplyParts<2, 2>, MultiplyParts<2, 3>},
    {MultiplyParts<3, 1>, MultiplyParts<3, 2>, MultiplyParts<3, 3>}};

}  // namespace

bool AmxAvailable() { return InstructionsAvailable(); }

template <class T>
void AmxPackFirst(const AmxPackArguments<T>& x, std::uint16_t* tiles) {
  Pack(x, true, tiles);
}
template <class T>
void AmxPackSecond(const AmxPackArguments<T>& x, std::uint16_t* tiles) {
  Pack(x, false, tiles);
}

void AmxProduct(const AmxProductArguments& x) {
  kProductFunctions[x.a_parts - 1][x.b_parts - 1](x);
}
#else
bool AmxAvailable() { return false; }

template <class T>
void AmxPackFirst(const AmxPackArguments<T>&, std::uint16_t*) {}
template <class T>
void AmxPackSecond(const AmxPackArguments<T>&, std::uint16_t*) {}

void AmxProduct(const AmxProductArguments&) {}
#endif

template void AmxPackFirst<float>(const AmxPackArguments<float>&, std::uint16_t*);
template void AmxPackFirst<BFloat16>(const AmxPackArguments<BFloat16>&, std::uint16_t*);
template void AmxPackFirst<Float16>(const AmxPackArguments<Float16>&, std::uint16_t*);
template void AmxPackSecond<float>(const AmxPackArguments<float>&, std::uint16_t*);
template void AmxPackSecond<BFloat16>(const AmxPackArguments<BFloat16>&, std::uint16_t*);
template void AmxPackSecond<Float16>(const AmxPackArguments<Float16>&, std::uint16_t*);

}  // namespace adaptive_train::kernels::cpu
