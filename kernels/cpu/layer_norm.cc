// Layer normalisation, a few rows at a time; its parameters' gradients a few columns at a time.
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_math.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kRowsPerPiece = 16;
constexpr std::int64_t kColumnsPerPiece = 64;

void ForwardRow(const LayerNormArguments<float>& x, std::int64_t row) {
  const float* input = x.input + row * x.columns;
  float* output = x.output + row * x.columns;
  const auto columns = static_cast<float>(x.columns);
  const float mean = SumOf(x.columns, [=](std::int64_t i) { return input[i]; }) / columns;
  const float variance =
      SumOf(x.columns, [=](std::int64_t i) { return (input[i] - mean) * (input[i] - mean); }) /
      columns;
  const float reciprocal_std = 1 / std::sqrt(variance + static_cast<float>(kLayerNormEpsilon));
  for (std::int64_t i = 0; i < x.columns; ++i) {
    output[i] = (input[i] - mean) * reciprocal_std * x.weight[i] + x.bias[i];
  }
  x.mean[row] = mean;
  x.reciprocal_std[row] = reciprocal_std;
}

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)).
void BackwardRow(const LayerNormBackwardArguments<float>& x, std::int64_t row) {
  const float* input = x.input + row * x.columns;
  const float* d_output = x.d_output + row * x.columns;
  const float* weight = x.weight;
  float* d_input = x.d_input + row * x.columns;
  const float mean = x.mean[row], reciprocal_std = x.reciprocal_std[row];
  const auto columns = static_cast<float>(x.columns);
  const float mean_g =
      SumOf(x.columns, [=](std::int64_t i) { return d_output[i] * weight[i]; }) / columns;
  const float mean_gn =
      SumOf(x.columns,
            [=](std::int64_t i) {
              return d_output[i] * weight[i] * ((input[i] - mean) * reciprocal_std);
            }) /
      columns;
  for (std::int64_t i = 0; i < x.columns; ++i) {
    const float normal = (input[i] - mean) * reciprocal_std;
    d_input[i] += reciprocal_std * (d_output[i] * weight[i] - mean_g - normal * mean_gn);
  }
}

/// Columns [begin, end) of the gradients of weight and bias, all rows in order.
void BackwardColumns(const LayerNormBackwardArguments<float>& x, std::int64_t begin,
                     std::int64_t end) {
  float d_weight[kColumnsPerPiece] = {}, d_bias[kColumnsPerPiece] = {};
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const float* input = x.input + row * x.columns + begin;
    const float* d_output = x.d_output + row * x.columns + begin;
    const float mean = x.mean[row], reciprocal_std = x.reciprocal_std[row];
    for (std::int64_t i = 0; i < end - begin; ++i) {
      d_weight[i] += d_output[i] * ((input[i] - mean) * reciprocal_std);
      d_bias[i] += d_output[i];
    }
  }
  for (std::int64_t i = begin; i < end; ++i) {
    x.d_weight[i] += d_weight[i - begin];
    x.d_bias[i] += d_bias[i - begin];
  }
}

}  // namespace

void CpuDevice::LayerNorm(const LayerNormArguments<float>& x) {
  pool_.ForPieces(x.rows, kRowsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) ForwardRow(x, row);
  });
}

void CpuDevice::LayerNormBackward(const LayerNormBackwardArguments<float>& x) {
  pool_.ForPieces(x.rows, kRowsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) BackwardRow(x, row);
  });
  pool_.ForPieces(x.columns, kColumnsPerPiece,
                  [&](std::int64_t begin, std::int64_t end) { BackwardColumns(x, begin, end); });
}

}  // namespace adaptive_train::kernels::cpu
