// Layer normalisation as plain loops.
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::LayerNorm(const LayerNormArguments<T>& x) {
  const T columns = static_cast<T>(x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* input = x.input + row * x.columns;
    T* output = x.output + row * x.columns;
    T mean = 0, variance = 0;
    for (std::int64_t i = 0; i < x.columns; ++i) mean += input[i] / columns;
    for (std::int64_t i = 0; i < x.columns; ++i)
      variance += (input[i] - mean) * (input[i] - mean) / columns;
    const T reciprocal_std = 1 / std::sqrt(variance + static_cast<T>(kLayerNormEpsilon));
    for (std::int64_t i = 0; i < x.columns; ++i) {
      output[i] = (input[i] - mean) * reciprocal_std * x.weight[i] + x.bias[i];
    }
    x.mean[row] = mean;
    x.reciprocal_std[row] = reciprocal_std;
  }
}

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)).
template <class T>
void ReferenceDevice<T>::LayerNormBackward(const LayerNormBackwardArguments<T>& x) {
  const T columns = static_cast<T>(x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* input = x.input + row * x.columns;
    const T* d_output = x.d_output + row * x.columns;
    const auto normal = [&](std::int64_t i) {
      return (input[i] - x.mean[row]) * x.reciprocal_std[row];
    };
    T mean_g = 0, mean_gn = 0;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      mean_g += d_output[i] * x.weight[i] / columns;
      mean_gn += d_output[i] * x.weight[i] * normal(i) / columns;
      x.d_weight[i] += d_output[i] * normal(i);
      x.d_bias[i] += d_output[i];
    }
    for (std::int64_t i = 0; i < x.columns; ++i) {
      x.d_input[row * x.columns + i] +=
          x.reciprocal_std[row] * (d_output[i] * x.weight[i] - mean_g - normal(i) * mean_gn);
    }
  }
}

template void ReferenceDevice<float>::LayerNorm(const LayerNormArguments<float>&);
template void ReferenceDevice<double>::LayerNorm(const LayerNormArguments<double>&);
template void ReferenceDevice<float>::LayerNormBackward(const LayerNormBackwardArguments<float>&);
template void ReferenceDevice<double>::LayerNormBackward(const LayerNormBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
