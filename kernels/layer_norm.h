// Contract of layer normalisation (Ba, Kiros, Hinton 2016) over the last dimension.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// Added to the variance, as in GPT-2.
inline constexpr double kLayerNormEpsilon = 1e-5;

/// output[r, c] = (input[r, c] - mean[r]) * reciprocal_std[r] * weight[c] + bias[c]
/// with the row's mean and 1 / sqrt(variance + kLayerNormEpsilon), variance over all columns, which
/// are kept for backward. columns is 1 or more. output may be input.
template <class T>
struct LayerNormArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* input = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* output = nullptr;
  T* mean = nullptr;            // [rows]
  T* reciprocal_std = nullptr;  // [rows]
};

/// Adds to d_input[rows, columns], d_weight[columns] and d_bias[columns]; none overlaps another
/// array. input, mean and reciprocal_std are those of forward.
template <class T>
struct LayerNormBackwardArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* d_output = nullptr;
  const T* input = nullptr;
  const T* weight = nullptr;
  const T* mean = nullptr;
  const T* reciprocal_std = nullptr;
  T* d_input = nullptr;
  T* d_weight = nullptr;
  T* d_bias = nullptr;
};

}  // namespace adaptive_train::kernels
