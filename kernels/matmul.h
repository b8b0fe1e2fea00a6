// Contracts of the matrix products: with what follows a product on its way to memory, and of
// gradients of weights.
#pragma once

#include <cstdint>

#include "kernels/gelu.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// c[rows, columns] = op(a)[rows, inner] op(b)[inner, columns] + bias[columns] + residual[rows,
/// columns] A transposed operand is stored the other way round: a as [inner, rows], b as [columns,
/// inner]. inner = 0 makes the product zero. c overlaps nothing else, except that it may be
/// residual.
///
/// With `gelu` other than kNone, and
///   activated     activated = gelu(c) is stored beside c, computed from c as it is stored, after
///   its rounding to T gelu_input    c is multiplied by gelu'(gelu_input[rows, columns]): the
///   product is the gradient of a GELU's output, c
///                 that of its input. Without bias and residual.
/// exactly one of the two is given; neither overlaps anything.
template <class T>
struct MatmulArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const T* a = nullptr;
  bool transpose_a = false;
  const T* b = nullptr;
  bool transpose_b = false;
  const T* bias = nullptr;      // nullptr: none
  const T* residual = nullptr;  // nullptr: none
  T* c = nullptr;
  GeluForm gelu = GeluForm::kNone;
  T* activated = nullptr;
  const T* gelu_input = nullptr;
};

/// d_weight[in, out] += input[rows, in]^T d_output[rows, out]
/// d_bias[out] += sum over rows of d_output, rows in ascending order, where d_bias is not nullptr
template <class T>
struct WeightGradientArguments {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  const T* input = nullptr;
  const T* d_output = nullptr;
  Accumulator<T>* d_weight = nullptr;
  Accumulator<T>* d_bias = nullptr;
};

}  // namespace adaptive_train::kernels
