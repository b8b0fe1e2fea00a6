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

/// The rows of each warp of a block in the backward.
constexpr int kRowsOfWarp = 4;

/// Sums over rows of the weights' gradients and, with a mean, of the biases': [kSums, columns].
template <bool kMean>
inline constexpr int kSums = kMean ? 2 : 1;

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)). Without a mean, mean(g) drops out.
// What the row adds to the weights' gradients is n * d_output, to the biases' d_output.
template <bool kMean, int kWidth, class T>
__device__ void BackwardOfRow(const NormBackwardArguments<T>& x, std::int64_t row, float* sums) {
  const T *const input = x.input + row * x.columns, *const d_output = x.d_output + row * x.columns;
  T* const d_input = x.d_input + row * x.columns;
  const float mean = kMean ? x.mean[row] : 0, reciprocal_std = x.reciprocal_std[row];
  const float columns = static_cast<float>(x.columns);
  using Floats = Neighbours<float, kWidth>;
  const auto for_terms = [&](const auto& body) {
    ForColumns<kWidth>(x.columns, [&](std::int64_t i) {
      const Neighbours<T, kWidth> values = Load<kWidth>(input + i);
      const Neighbours<T, kWidth> gradients = Load<kWidth>(d_output + i);
      Floats normal, d;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        normal.at[j] = (Wide(values.at[j]) - mean) * reciprocal_std;
        d.at[j] = Wide(gradients.at[j]);
      }
      body(i, normal, d, Load<kWidth>(x.weight + i));
    });
  };
  float mean_g = 0, mean_gn = 0;
  for_terms([&](std::int64_t i, const Floats& normal, const Floats& d, const auto& weights) {
    Floats of_weights = Load<kWidth>(sums + i), of_biases = {};
    if constexpr (kMean) of_biases = Load<kWidth>(sums + x.columns + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float g = d.at[j] * Wide(weights.at[j]);
      mean_g += g;
      mean_gn += g * normal.at[j];
      of_weights.at[j] += d.at[j] * normal.at[j];
      of_biases.at[j] += d.at[j];
    }
    Store(of_weights, sums + i);
    if constexpr (kMean) Store(of_biases, sums + x.columns + i);
  });
  mean_g = kMean ? OverLanes(mean_g, Plus()) / columns : 0;
  mean_gn = OverLanes(mean_gn, Plus()) / columns;
  for_terms([&](std::int64_t i, const Floats& normal, const Floats& d, const auto& weights) {
    Neighbours<T, kWidth> gradients = {};
    if (x.accumulate) gradients = Load<kWidth>(d_input + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float g = d.at[j] * Wide(weights.at[j]);
      const float own = reciprocal_std * (g - mean_g - normal.at[j] * mean_gn);
      gradients.at[j] = Narrow<T>(x.accumulate ? Wide(gradients.at[j]) + own : own);
    }
    Store(gradients, d_input + i);
  });
}

/// partial[block, kSums, columns]: each warp sums its rows in ascending order, in shared memory,
/// and the warps are added in theirs.
template <bool kMean, int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    NormBackwardKernel(NormBackwardArguments<T> x, float* partial) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first = std::int64_t{blockIdx.x} * warps * kRowsOfWarp;
  const std::int64_t next = first + warps * kRowsOfWarp, end = next < x.rows ? next : x.rows;
  const std::int64_t count = kSums<kMean> * x.columns;
  float* const sums = DynamicShared<float>();
  for (std::int64_t i = threadIdx.x; i < warps * count; i += blockDim.x) sums[i] = 0;
  __syncthreads();
  for (std::int64_t row = first + warp; row < end; row += warps)
    BackwardOfRow<kMean, kWidth>(x, row, sums + warp * count);
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    float sum = 0;
    for (int other = 0; other < warps; ++other) sum += sums[other * count + i];
    partial[std::int64_t{blockIdx.x} * count + i] = sum;
  }
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

/// As many warps as have room for `count` sums each: by the shape alone, since sums depend on it.
std::int64_t WarpsFor(std::int64_t count) {
  constexpr std::int64_t kMostSums = 12 << 10;  // of a block: 48 KiB
  return std::clamp<std::int64_t>(kMostSums / count, 1, kThreads / kWarp);
}

template <bool kMean, class T>
void Backward(const Stream& stream, Room& room, const NormBackwardArguments<T>& x) {
  if (x.rows == 0) return;
  const std::int64_t count = kSums<kMean> * x.columns, warps = WarpsFor(count);
  const std::int64_t blocks = Pieces(x.rows, warps * kRowsOfWarp);
  float* const partial = room.For<float>(blocks * count);
  const auto kernel = AreAligned(kAtOnce, x.columns, x.input, x.d_output, x.d_input, x.weight)
                          ? NormBackwardKernel<kMean, kAtOnce, T>
                          : NormBackwardKernel<kMean, 1, T>;
  Launch(stream, static_cast<unsigned>(blocks), static_cast<unsigned>(warps * kWarp),
         static_cast<std::size_t>(warps * count) * sizeof(float), kernel, x, partial);
  FinishColumnSums<kSums<kMean>>(stream, blocks, x.columns, partial, {x.d_weight, x.d_bias});
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
