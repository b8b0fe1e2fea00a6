// The allowed distance of a device's operation from the float64 reference: one table for all
// operations and scalars.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/tile_product.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels {

enum class Op {
  kMatmul,
  kWeightGradient,
  kNorm,
  kNormBackward,
  kActivated,
  kGelu,
  kGeluBackward,
  kSwiglu,
  kSwigluBackward,
  kRope,
  kAttention,
  kLogSumExp,
  kAttentionBackward,
  kEmbedding,
  kEmbeddingBackward,
  kHeadLoss,
  kHeadGradient,
  kDropout,
  kAdamW,
  kRound,
  kReduction,
};

/// |actual - expected| may be up to relative * |expected| + of_largest * max(1, largest |expected|
/// of the array).
struct Bound {
  double relative;
  double of_largest;

  bool Allows(double expected, double actual, double largest) const {
    return std::abs(actual - expected) <=
           relative * std::abs(expected) + of_largest * std::max(1.0, largest);
  }
};

/// The error of float32 arithmetic: for sums of a few hundred terms of size 1, unless the line says
/// otherwise.
inline double ArithmeticError(Op op) {
  switch (op) {
    case Op::kMatmul:
      return 2e-6;  // errors of a sum grow with the root of its length; GELU's terms are below 1
    case Op::kWeightGradient:
      return 2e-6;  // the same sums, over rows
    case Op::kNorm:
      return 4e-6;  // a small variance enlarges what its mean lost
    case Op::kNormBackward:
      return 6e-6;  // two means and the statistics' own error
    case Op::kActivated:
      return 3e-6;  // a product's, times a slope of up to 1.13
    case Op::kGelu:
      return 5e-7;  // an exponential and a division
    case Op::kGeluBackward:
      return 2e-6;  // slopes up to 1.1, to 5e-7, times gradients
    case Op::kSwiglu:
      return 1e-6;  // one exponential and a division
    case Op::kSwigluBackward:
      return 2e-6;  // the same, and a sum of two products
    case Op::kRope:
      return 1e-6;  // angles are made in double; one rounding of each sine and product
    case Op::kAttention:
    case Op::kLogSumExp:
      return 4e-6;  // an exponential turns the scores' absolute error into a relative one
    case Op::kAttentionBackward:
      return 8e-6;  // probabilities as in forward, then a difference and two more sums
    case Op::kEmbedding:
      return 5e-7;  // two additions
    case Op::kEmbeddingBackward:
      return 3e-6;  // a sum over all rows of one token
    case Op::kHeadLoss:
    case Op::kHeadGradient:
      return 4e-6;  // the logits' absolute error goes into the loss and all gradients
    case Op::kDropout:
      return 5e-7;  // one product and one addition
    case Op::kAdamW:
      return 2e-6;  // a root and two divisions
    case Op::kRound:
      return 0;  // nothing but the rounding
    case Op::kReduction:
      return 1e-12;  // sums in double
  }
  return 0;
}

/// Half a unit in the last place of T, of numbers between 1/2 and 1.
template <class T>
constexpr double HalfUnit() {
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-9;  // 8 bits of significand
  if constexpr (std::is_same_v<T, Float16>) return 0x1p-12;  // 11 bits
  return 0;
}

/// Where products take 16-bit operands, computed ones are rounded before they are multiplied: on
/// GPUs, and in tiles of bfloat16 numbers. The latter depends on the instruction set under test.
template <class T>
bool RoundsOperands() {
#if defined(ADAPTIVE_TRAIN_TEST_CUDA)
  return true;
#else
  return cpu::kTileParts<T> == 1 && cpu::TilesPay<T>();
#endif
}

/// What an operation may round to a 16-bit T on its way, in half units of the largest output. A GPU's
/// library also rounds what a CPU does not.
template <class T>
double RoundingsWithin(Op op) {
#if defined(ADAPTIVE_TRAIN_TEST_CUDA)
  constexpr double kOnGpus = 1;
#else
  constexpr double kOnGpus = 0;
#endif
  const double operands = RoundsOperands<T>() ? 1 : 0;
  switch (op) {
    case Op::kMatmul:
      return 2 * kOnGpus;  // the product, before a bias or a residual is added
    case Op::kActivated:
      return 2 * kOnGpus + 2 * 1.13;  // the same, and the GELU's argument, times its slope
    case Op::kAttention:
      return operands;  // probabilities
    case Op::kAttentionBackward:
      return 2 * operands;  // probabilities, and gradients of scores
    case Op::kHeadLoss:
      return 2 * kOnGpus;  // a token's logits: its target's and the others'
    case Op::kHeadGradient:
      return 2 * kOnGpus + 2 * operands;  // logits: a relative error of probabilities; gradients
    default:
      return 0;
  }
}

/// For an output of an operation on T, stored as T or as a sum in Accumulator<T>: its rounding, those
/// before it and the arithmetic.
template <class T>
Bound Tolerance(Op op, bool is_sum = false) {
  if constexpr (std::is_same_v<T, double>) {
    return {0, 1e-12};  // another order of the same sums
  } else {
    const double within = ArithmeticError(op) + RoundingsWithin<T>(op) * HalfUnit<T>();
    // 2^-24 is binary16's smallest step near zero.
    const double subnormal = std::is_same_v<T, Float16> ? 0x1p-25 : 0;
    return is_sum ? Bound{0, within} : Bound{2 * HalfUnit<T>(), within + subnormal};
  }
}

}  // namespace adaptive_train::kernels
