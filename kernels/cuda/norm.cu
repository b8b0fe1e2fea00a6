// LayerNorm and RmsNorm, a warp a row: after the first pass over it, a row is in the cache.
#include "kernels/norm.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/instances.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// The warp's row, which may be past the last.
__device__ inline std::int64_t RowOfWarp() {
  return std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
}

/// body(i) for the lane's columns, kWidth neighbours at a time.
template <int kWidth, class Body>
__device__ void ForColumns(std::int64_t columns, const Body& body) {
  for (std::int64_t i = threadIdx.x % kWarp * kWidth; i < columns; i += kWarp * kWidth) body(i);
}

template <bool kMean, int kWidth, class T>
__global__ void __launch_bounds__(kThreads) NormKernel(NormArguments<T> x) {
  const std::int64_t row = RowOfWarp();
  if (row >= x.rows) return;
  const T* const input = x.input + row * x.columns;
  T* const output = x.output + row * x.columns;
  const float columns = static_cast<float>(x.columns);
  float mean = 0;
  if constexpr (kMean) {
    ForColumns<kWidth>(x.columns, [&](std::int64_t i) {
      for (const T& value : Load<kWidth>(input + i).at) mean += Wide(value);
    });
    mean = OverLanes(mean, Plus()) / columns;
  }
  float squares = 0;
  ForColumns<kWidth>(x.columns, [&](std::int64_t i) {
    for (const T& value : Load<kWidth>(input + i).at) {
      const float from_mean = Wide(value) - mean;
      squares += from_mean * from_mean;
    }
  });
  squares = OverLanes(squares, Plus()) / columns;
  const float reciprocal_std = 1 / sqrtf(squares + static_cast<float>(x.epsilon));
  ForColumns<kWidth>(x.columns, [&](std::int64_t i) {
    Neighbours<T, kWidth> values = Load<kWidth>(input + i);
    const Neighbours<T, kWidth> weights = Load<kWidth>(x.weight + i);
    Neighbours<T, kWidth> biases = {};
    if constexpr (kMean) biases = Load<kWidth>(x.bias + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float value = (Wide(values.at[j]) - mean) * reciprocal_std * Wide(weights.at[j]);
      if constexpr (kMean) value += Wide(biases.at[j]);
      values.at[j] = Narrow<T>(value);
    }
    Store(values, output + i);
  });
  if (threadIdx.x % kWarp != 0) return;
  x.reciprocal_std[row] = reciprocal_std;
  if constexpr (kMean) x.mean[row] = mean;
}

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)). Without a mean, mean(g) drops out.
template <bool kMean, int kWidth, class T>
__global__ void __launch_bounds__(kThreads) NormBackwardKernel(NormBackwardArguments<T> x) {
  const std::int64_t row = RowOfWarp();
  if (row >= x.rows) return;
  const T *const input = x.input + row * x.columns, *const d_output = x.d_output + row * x.columns;
  T* const d_input = x.d_input + row * x.columns;
  const float mean = kMean ? x.mean[row] : 0, reciprocal_std = x.reciprocal_std[row];
  const float columns = static_cast<float>(x.columns);
  const auto for_terms = [&](const auto& body) {
    ForColumns<kWidth>(x.columns, [&](std::int64_t i) {
      const Neighbours<T, kWidth> values = Load<kWidth>(input + i);
      const Neighbours<T, kWidth> gradients = Load<kWidth>(d_output + i);
      const Neighbours<T, kWidth> weights = Load<kWidth>(x.weight + i);
      float normal[kWidth], g[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        normal[j] = (Wide(values.at[j]) - mean) * reciprocal_std;
        g[j] = Wide(gradients.at[j]) * Wide(weights.at[j]);
      }
      body(i, normal, g);
    });
  };
  float mean_g = 0, mean_gn = 0;
  for_terms([&](std::int64_t, const float(&normal)[kWidth], const float(&g)[kWidth]) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      mean_g += g[j];
      mean_gn += g[j] * normal[j];
    }
  });
  mean_g = kMean ? OverLanes(mean_g, Plus()) / columns : 0;
  mean_gn = OverLanes(mean_gn, Plus()) / columns;
  for_terms([&](std::int64_t i, const float(&normal)[kWidth], const float(&g)[kWidth]) {
    Neighbours<T, kWidth> gradients = {};
    if (x.accumulate) gradients = Load<kWidth>(d_input + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float d = reciprocal_std * (g[j] - mean_g - normal[j] * mean_gn);
      gradients.at[j] = Narrow<T>(x.accumulate ? Wide(gradients.at[j]) + d : d);
    }
    Store(gradients, d_input + i);
  });
}

/// The gradients of weights and, with a mean, of biases.
template <bool kMean, int kWidth, class T>
void AddToWeights(const Stream& stream, Room& room, const NormBackwardArguments<T>& x) {
  constexpr int kSums = kMean ? 2 : 1;
  std::array<float*, kSums> sums{x.d_weight};
  if constexpr (kMean) sums[1] = x.d_bias;
  AddColumnSums<kSums, kWidth>(
      stream, room, x.rows, x.columns,
      [x] __device__(std::int64_t row, std::int64_t column, ColumnTerms<kSums, kWidth> & terms) {
        const std::int64_t at = row * x.columns + column;
        const float mean = kMean ? x.mean[row] : 0, reciprocal_std = x.reciprocal_std[row];
        const Neighbours<T, kWidth> values = Load<kWidth>(x.input + at);
        const Neighbours<T, kWidth> gradients = Load<kWidth>(x.d_output + at);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float d = Wide(gradients.at[i]);
          terms.of[0][i] += d * ((Wide(values.at[i]) - mean) * reciprocal_std);
          if constexpr (kMean) terms.of[1][i] += d;
        }
      },
      sums);
}

unsigned BlocksFor(std::int64_t rows) {
  return static_cast<unsigned>(Pieces(rows, kThreads / kWarp));
}

constexpr int kAtOnce = 4;

template <bool kMean, class T>
void Forward(const Stream& stream, const NormArguments<T>& x) {
  if (x.rows == 0) return;
  const auto kernel = AreAligned(kAtOnce, x.columns, x.input, x.output, x.weight, x.bias)
                          ? NormKernel<kMean, kAtOnce, T>
                          : NormKernel<kMean, 1, T>;
  Launch(stream, BlocksFor(x.rows), kThreads, 0, kernel, x);
}

/// The weights' gradients come first, since d_input may be d_output.
template <bool kMean, class T>
void Backward(const Stream& stream, Room& room, const NormBackwardArguments<T>& x) {
  if (x.rows == 0) return;
  if (AreAligned(kAtOnce, x.columns, x.input, x.d_output, x.d_input, x.weight)) {
    AddToWeights<kMean, kAtOnce>(stream, room, x);
    Launch(stream, BlocksFor(x.rows), kThreads, 0, NormBackwardKernel<kMean, kAtOnce, T>, x);
  } else {
    AddToWeights<kMean, 1>(stream, room, x);
    Launch(stream, BlocksFor(x.rows), kThreads, 0, NormBackwardKernel<kMean, 1, T>, x);
  }
}

}  // namespace

template <class T>
void CudaDevice<T>::LayerNorm(const NormArguments<T>& x) {
  stream_.Begin("LayerNorm");
  Forward<true>(stream_, x);
}

template <class T>
void CudaDevice<T>::RmsNorm(const NormArguments<T>& x) {
  stream_.Begin("RmsNorm");
  Forward<false>(stream_, x);
}

template <class T>
void CudaDevice<T>::LayerNormBackward(const NormBackwardArguments<T>& x) {
  stream_.Begin("LayerNormBackward");
  Backward<true>(stream_, partial_, x);
}

template <class T>
void CudaDevice<T>::RmsNormBackward(const NormBackwardArguments<T>& x) {
  stream_.Begin("RmsNormBackward");
  Backward<false>(stream_, partial_, x);
}

ADAPTIVE_TRAIN_CUDA_OPERATION(LayerNorm, NormArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(RmsNorm, NormArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(LayerNormBackward, NormBackwardArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(RmsNormBackward, NormBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
