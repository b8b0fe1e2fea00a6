// Contracts of matrix products with their epilogues, and of the gradients of weights.
#pragma once

#include <cstdint>

#include "kernels/gelu.h"
#include "kernels/inner_groups.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// c[rows, columns] = op(a)[rows, inner] op(b)[inner, columns] + bias[columns] +
///                    residual[rows, columns]
/// A transposed operand is stored the other way round: a as [inner, rows], b as [columns, inner].
/// inner = 0 makes the product zero. c overlaps nothing else, except that it may be residual.
///
/// With groups, bias and residual are added to the first group's sum: of ranks that share inner, the
/// first one has them. No GELU then, and only where T is its own accumulator.
///
/// If `gelu` is not kNone, exactly one of these two is given, and it overlaps nothing:
///   activated   receives gelu(c), computed from c after its rounding to T, or before it.
///   gelu_input  [rows, columns]: c is multiplied by gelu'(gelu_input). The product is then the
///               gradient of a GELU's output, and c that of its input. No bias or residual then.
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
  InnerGroups groups = {};
  GeluForm gelu = GeluForm::kNone;
  T* activated = nullptr;
  const T* gelu_input = nullptr;
};

/// d_weight[in, out] += input[rows, in]^T d_output[rows, out]
/// d_bias[out] += sum over rows of d_output, in an order that the shape alone determines; skipped if d_bias is nullptr
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
