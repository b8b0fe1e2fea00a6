// Matrix products on the matrix unit of x86-64 processors that have one (AMX). It multiplies
// bfloat16 numbers and adds up in float32, sixteen times as fast as vectors multiply floats; so
// floats are split into bfloat16 numbers: Henry, Tang and Heinecke, "Leveraging the bfloat16
// Artificial Intelligence Datatype For Higher-Precision Computations" (2019).
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels::cpu {

/// Whether this processor has the unit, Highway may use all that it has (tests say otherwise), and
/// the kernel grants this process the registers, which the first call asks for. Any thread.
bool AmxAvailable();

/// Of how many bfloat16 numbers a T is the sum: 24 bits of significand are three times 8. Exact
/// down to parts of 2^-126, below which the unit takes numbers for zero; floats that round to
/// 2^128 (from 3.3895e38) have infinite and undefined parts, as non-finite ones have.
template <class T>
inline constexpr int kAmxParts = 3;
template <>
inline constexpr int kAmxParts<Float16> = 2;
template <>
inline constexpr int kAmxParts<BFloat16> = 1;

/// What a tile holds: 16 rows of the first operand, or columns of the second, by 32 of k.
inline constexpr std::int64_t kAmxSide = 16, kAmxDepth = 32;
inline constexpr std::int64_t kAmxTile = kAmxSide * kAmxDepth;

/// A part of an operand: `lines` rows of a first operand or columns of a second, and `depth` of k.
/// Along: k runs along the matrix's rows, whose distance is `stride`; else down its columns.
template <class T>
struct AmxPackArguments {
  const T* matrix = nullptr;
  std::int64_t stride = 0;
  bool along = true;
  std::int64_t lines = 0;
  std::int64_t depth = 0;
  int parts = kAmxParts<T>;
};

/// Bfloat16 numbers of such a part: [lines / 16][depth / 32][parts][kAmxTile], both rounded up, the
/// lines to an even number of tiles.
inline constexpr std::int64_t AmxPackedSize(std::int64_t lines, std::int64_t depth, int parts) {
  return (lines + 2 * kAmxSide - 1) / (2 * kAmxSide) * 2 * ((depth + kAmxDepth - 1) / kAmxDepth) *
         parts * kAmxTile;
}

/// Packs tiles of a first and of a second operand; what is past the matrix is zero.
template <class T>
void AmxPackFirst(const AmxPackArguments<T>& x, std::uint16_t* tiles);
template <class T>
void AmxPackSecond(const AmxPackArguments<T>& x, std::uint16_t* tiles);

/// c[rows, columns] = a b of packed operands, added to c with `accumulate`; c is not touched past
/// its columns. Of products of parts those are left out that are below 2^-24 of the whole.
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
};

/// Sums do not depend on how rows and columns are cut into pieces, nor on cuts of k at multiples of
/// kAmxDepth. They are other sums than vectors make: of 32 products at a time. AmxAvailable() was
/// true.
void AmxProduct(const AmxProductArguments& x);

}  // namespace adaptive_train::kernels::cpu
