// Matrix products of bfloat16 numbers with sums in float32, on x86-64 processors that have
// instructions for them. Those of a matrix unit (AMX) do sixteen times as much as vectors of floats
// do, those on vectors (AVX512-BF16) twice as much. For a matrix unit floats are split into
// bfloat16 parts (Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence
// Datatype For Higher-Precision Computations", 2019).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/scalar.h"

namespace adaptive_train::kernels::cpu {

/// What multiplies tiles.
enum class TileUnit { kNone, kVectors, kMatrix };

/// What this processor has, Highway may use (tests can restrict it), and the operating system
/// grants this process. The first call asks the kernel for a matrix unit's registers. Any thread
/// may call.
TileUnit TileUnitHere();

/// Whether tiles are the fastest way to multiply numbers of type T here: on vectors the parts of
/// wider numbers take longer than products of floats.
template <class T>
bool TilesPay() {
  const TileUnit unit = TileUnitHere();
  return unit == TileUnit::kMatrix || (unit == TileUnit::kVectors && std::is_same_v<T, BFloat16>);
}

/// The number of bfloat16 parts whose sum is a T: a float's 24 bits of significand are three times
/// 8. The split is exact down to parts of 2^-126; units treat smaller numbers as zero. Floats
/// that round to 2^128 (from 3.3895e38) get infinite and undefined parts, as do non-finite ones.
template <class T>
inline constexpr int kTileParts = 3;
template <>
inline constexpr int kTileParts<Float16> = 2;
template <>
inline constexpr int kTileParts<BFloat16> = 1;

/// The shape of a tile: 16 rows of the first operand, or columns of the second, by 32 of k.
inline constexpr std::int64_t kTileSide = 16, kTileDepth = 32;
inline constexpr std::int64_t kTileSize = kTileSide * kTileDepth;

/// A part of an operand: `lines` rows of a first operand or columns of a second, and `depth` of k.
/// If `along`, k runs along the matrix's rows, which are `stride` apart; otherwise down its
/// columns.
template <class T>
struct TilePackArguments {
  const T* matrix = nullptr;
  std::int64_t stride = 0;
  bool along = true;
  std::int64_t lines = 0;
  std::int64_t depth = 0;
  int parts = kTileParts<T>;
};

/// The size of a packed part in bfloat16 numbers: [lines / 16][depth / 32][parts][kTileSize]. Both
/// are rounded up, the lines to an even number of tiles.
inline constexpr std::int64_t TilesSize(std::int64_t lines, std::int64_t depth, int parts) {
  return (lines + 2 * kTileSide - 1) / (2 * kTileSide) * 2 *
         ((depth + kTileDepth - 1) / kTileDepth) * parts * kTileSize;
}

/// Pack tiles of a first and of a second operand. Numbers past the matrix are zero. Numbers that
/// get fewer parts than they need are rounded to the nearest even in one part, cut off in two.
template <class T>
void PackFirstTiles(const TilePackArguments<T>& x, std::uint16_t* tiles);
template <class T>
void PackSecondTiles(const TilePackArguments<T>& x, std::uint16_t* tiles);

/// c[rows, columns] = a b of packed operands; `accumulate` adds to c. c is not touched past its
/// columns. Numbers of b between `inner` and the next multiple of kTileDepth must be finite.
/// Products of parts that are below 2^-24 of the whole are left out.
struct TileProductArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const std::uint16_t* a = nullptr;
  int a_parts = 0;
  const std::uint16_t* b = nullptr;
  int b_parts = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool accumulate = false;
  std::int64_t b_depth = 0;  // the depth of b when it was packed, if more than `inner`
};

/// The sums do not depend on how rows and columns are cut into pieces, nor on cuts of k at
/// multiples of kTileDepth. They differ from unit to unit, and from those of vectors of floats: a
/// matrix unit adds 32 products at a time. Requires a unit; vectors take operands of one part.
void TileProduct(const TileProductArguments& x);

}  // namespace adaptive_train::kernels::cpu
