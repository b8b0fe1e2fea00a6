// LayerNorm and RmsNorm as plain loops.
#include "kernels/norm.h"

#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

template <class T>
void Normalize(const NormArguments<T>& x, std::int64_t row, T mean) {
  const T columns = static_cast<T>(x.columns);
  const T* input = x.input + row * x.columns;
  T* output = x.output + row * x.columns;
  T squares = 0;
  for (std::int64_t i = 0; i < x.columns; ++i) {
    squares += (input[i] - mean) * (input[i] - mean) / columns;
  }
  const T reciprocal_std = 1 / std::sqrt(squares + static_cast<T>(x.epsilon));
  for (std::int64_t i = 0; i < x.columns; ++i) {
    output[i] = (input[i] - mean) * reciprocal_std * x.weight[i];
  }
  x.reciprocal_std[row] = reciprocal_std;
}

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)). Without a mean, mean(g) drops out.
template <class T>
void Backward(const NormBackwardArguments<T>& x, std::int64_t row, bool has_mean) {
  const T columns = static_cast<T>(x.columns);
  const T* input = x.input + row * x.columns;
  const T* d_output = x.d_output + row * x.columns;
  T* d_input = x.d_input + row * x.columns;
  const T mean = has_mean ? x.mean[row] : 0;
  const auto normal = [&](std::int64_t i) { return (input[i] - mean) * x.reciprocal_std[row]; };
  T mean_g = 0, mean_gn = 0;
  for (std::int64_t i = 0; i < x.columns; ++i) {
    if (has_mean) mean_g += d_output[i] * x.weight[i] / columns;
    mean_gn += d_output[i] * x.weight[i] * normal(i) / columns;
    x.d_weight[i] += d_output[i] * normal(i);
  }
  for (std::int64_t i = 0; i < x.columns; ++i) {
    const T d = x.reciprocal_std[row] * (d_output[i] * x.weight[i] - mean_g - normal(i) * mean_gn);
    d_input[i] = x.accumulate ? d_input[i] + d : d;
  }
}

}  // namespace

template <class T>
void ReferenceDevice<T>::LayerNorm(const NormArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    T mean = 0;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      mean += x.input[row * x.columns + i] / static_cast<T>(x.columns);
    }
    Normalize(x, row, mean);
    for (std::int64_t i = 0; i < x.columns; ++i) x.output[row * x.columns + i] += x.bias[i];
    x.mean[row] = mean;
  }
}

template <class T>
void ReferenceDevice<T>::RmsNorm(const NormArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) Normalize(x, row, T{0});
}

template <class T>
void ReferenceDevice<T>::LayerNormBackward(const NormBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t i = 0; i < x.columns; ++i) x.d_bias[i] += x.d_output[row * x.columns + i];
    Backward(x, row, true);
  }
}

template <class T>
void ReferenceDevice<T>::RmsNormBackward(const NormBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) Backward(x, row, false);
}

template void ReferenceDevice<float>::LayerNorm(const NormArguments<float>&);
template void ReferenceDevice<double>::LayerNorm(const NormArguments<double>&);
template void ReferenceDevice<float>::RmsNorm(const NormArguments<float>&);
template void ReferenceDevice<double>::RmsNorm(const NormArguments<double>&);
template void ReferenceDevice<float>::LayerNormBackward(const NormBackwardArguments<float>&);
template void ReferenceDevice<double>::LayerNormBackward(const NormBackwardArguments<double>&);
template void ReferenceDevice<float>::RmsNormBackward(const NormBackwardArguments<float>&);
template void ReferenceDevice<double>::RmsNormBackward(const NormBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
