// Matrix products on the matrix unit of x86-64 processors that have one (AMX). It multiplies
// bfloat16 numbers and accumulates in float32, sixteen times as fast as vectors multiply floats.
// Floats are therefore split into bfloat16 parts (Henry, Tang and Heinecke, "Leveraging the
// bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019).
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels::cpu {

/// Whether this processor has AMX, Highway may use all that the processor has (tests can restrict
/// it), and the kernel grants this process the registers. The first call asks the kernel for them.
/// Any thread may call.
bool AmxAvailable();

/// The number of bfloat16 parts whose sum is a T: a float's 24 bits of significand are three times
/// 8. The split is exact down to parts of 2^-126; the unit treats smaller numbers as zero. Floats
/// that round to 2^128 (from 3.3895e38) get infinite and undefined parts, as do non-finite ones.
template <class T>
inline constexpr int kAmxParts = 3;
template <>
inline constexpr int kAmxParts<Float16> = 2;
template <>
inline constexpr int kAmxParts<BFloat16> = 1;

/// The shape of a tile: 16 rows of the first operand, or columns of the second, by 32 of k.
inline constexpr std::int64_t kAmxSide = 16, kAmxDepth = 32;
inline constexpr std::int64_t kAmxTile = kAmxSide * kAmxDepth;

/// A part of an operand: `lines` rows of a first operand or columns of a second, and `depth` of k.
/// If `along`, k runs along the matrix's rows, which are `stride` apart; otherwise down its
/// columns.
template <class T>
struct AmxPackArguments {
  const T* matrix = nullptr;
  std::int64_t stride = 0;
  bool along = true;
  std::int64_t lines = 0;
  std::int64_t depth = 0;
  int parts = kAmxParts<T>;
};

/// The size of a packed part in bfloat16 numbers: [lines / 16][depth / 32][parts][kAmxTile]. Both
/// are rounded up, the lines to an even number of tiles.
inline constexpr std::int64_t AmxPackedSize(std::int64_t lines, std::int64_t depth, int parts) {
  return (lines + 2 * kAmxSide - 1) / (2 * kAmxSide) * 2 * ((depth + kAmxDepth - 1) / kAmxDepth) *
         parts * kAmxTile;
}

/// Pack tiles of a first and of a second operand. Numbers past the matrix are zero.
template <class T>
void AmxPackFirst(const AmxPackArguments<T>& x, std::uint16_t* tiles);
template <class T>
void AmxPackSecond(const AmxPackArguments<T>& x, std::uint16_t* tiles);

/// c[rows, columns] = a b of packed operands; `accumulate` adds to c. c is not touched past its
/// columns. Numbers of b between `inner` and the next multiple of kAmxDepth must be finite. Products of parts that are below 2^-24 of the whole are left out.
struct AmxProductArguments {
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
/// multiples of kAmxDepth. They differ from the vectors' sums, since 32 products are added at a
/// time. Requires AmxAvailable().
void AmxProduct(const AmxProductArguments& x);

}  // namespace adaptive_train::kernels::cpu
