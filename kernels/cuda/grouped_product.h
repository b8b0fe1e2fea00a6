// Products of float32 whose sums have an order of their own: the same bits in every shape and
// layout.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace adaptive_train::kernels::cuda {

/// c[rows, columns] = sum over k in [begin, end), ascending, of a[., k] b[k, .], each step fused; with
/// `accumulate` the sums go on from c. Strides are in elements.
struct OrderedProduct {
  std::int64_t rows = 0, columns = 0, begin = 0, end = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_inner = 0;
  const float* b = nullptr;
  std::int64_t b_inner = 0, b_column = 0;
  float* c = nullptr;  // dense
  bool accumulate = false;
};

void Multiply(const Stream& stream, const OrderedProduct& x);

/// to[i] += from[i]
void AddPlace(const Stream& stream, std::int64_t count, const float* from, float* to);

}  // namespace adaptive_train::kernels::cuda
