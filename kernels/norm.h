// Contracts of layer normalisation (Ba, Kiros, Hinton 2016) and of its form without mean and bias
// (Zhang, Sennrich 2019).
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// LayerNorm: output[r, c] = (input[r, c] - mean[r]) * reciprocal_std[r] * weight[c] + bias[c],
///   reciprocal_std[r] = 1 / sqrt(variance + epsilon), with the row's mean and variance
/// RmsNorm:   output[r, c] = input[r, c] * reciprocal_std[r] * weight[c],
///   reciprocal_std[r] = 1 / sqrt(mean of squares + epsilon); bias and mean are not touched
/// The statistics are kept for backward. columns is 1 or more. output may be input.
template <class T>
struct NormArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double epsilon = 1e-5;
  const T* input = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* output = nullptr;
  Accumulator<T>* mean = nullptr;            // [rows]
  Accumulator<T>* reciprocal_std = nullptr;  // [rows]
};

/// Adds to d_weight[columns] and, for LayerNorm, d_bias[columns]. Rows are summed in ascending
/// order within pieces that the shape alone determines. `accumulate` adds to d_input[rows,
/// columns]; otherwise it is overwritten without being read, and may be d_output. Nothing else
/// overlaps. input, mean and reciprocal_std are those of forward.
template <class T>
struct NormBackwardArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* d_output = nullptr;
  const T* input = nullptr;
  const T* weight = nullptr;
  const Accumulator<T>* mean = nullptr;
  const Accumulator<T>* reciprocal_std = nullptr;
  T* d_input = nullptr;
  bool accumulate = false;
  Accumulator<T>* d_weight = nullptr;
  Accumulator<T>* d_bias = nullptr;
};

}  // namespace adaptive_train::kernels
