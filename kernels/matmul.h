// Contract of the matrix product, and of the gradient of its bias.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// c[rows, columns] = op(a)[rows, inner] op(b)[inner, columns] + bias[columns]
/// With `accumulate` the right side is added to c, otherwise c is overwritten and never read.
/// A transposed operand is stored the other way round: a as [inner, rows], b as [columns, inner].
/// inner = 0 makes the product zero. c overlaps nothing else.
template <class T>
struct MatmulArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const T* a = nullptr;
  bool transpose_a = false;
  const T* b = nullptr;
  bool transpose_b = false;
  const T* bias = nullptr;  // nullptr: none
  T* c = nullptr;
  bool accumulate = false;
};

/// d_bias[columns] += sum over rows of d_output[rows, columns], rows in ascending order.
template <class T>
struct BiasBackwardArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* d_output = nullptr;
  T* d_bias = nullptr;
};

}  // namespace adaptive_train::kernels
