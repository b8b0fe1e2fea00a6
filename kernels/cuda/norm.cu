// LayerNorm and RmsNorm, a block of threads a row.
#include "kernels/norm.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/instances.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

template <bool kMean, class T>
__global__ void __launch_bounds__(kThreads) NormKernel(NormArguments<T> x) {
  __shared__ float place[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const T* const input = x.input + row * x.columns;
  T* const output = x.output + row * x.columns;
  const float columns = static_cast<float>(x.columns);
  float mean = 0;
  if constexpr (kMean) {
    for (std::int64_t i = threadIdx.x; i < x.columns; i += kThreads) mean += Wide(input[i]);
    mean = OverBlock(mean, Plus(), place) / columns;
  }
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < x.columns; i += kThreads) {
    const float from_mean = Wide(input[i]) - mean;
    squares += from_mean * from_mean;
  }
  squares = OverBlock(squares, Plus(), place) / columns;
  const float reciprocal_std = 1 / sqrtf(squares + static_cast<float>(x.epsilon));
  for (std::int64_t i = threadIdx.x; i < x.columns; i += kThreads) {
    float value = (Wide(input[i]) - mean) * reciprocal_std * Wide(x.weight[i]);
    if constexpr (kMean) value += Wide(x.bias[i]);
    output[i] = Narrow<T>(value);
  }
  if (threadIdx.x != 0) return;
  x.reciprocal_std[row] = reciprocal_std;
  if constexpr (kMean) x.mean[row] = mean;
}

// With n = (input - mean) * reciprocal_std and g = d_output * weight:
// d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)). Without a mean, mean(g) drops out.
template <bool kMean, class T>
__global__ void __launch_bounds__(kThreads) NormBackwardKernel(NormBackwardArguments<T> x) {
  __shared__ float place[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const T *const input = x.input + row * x.columns, *const d_output = x.d_output + row * x.columns;
  T* const d_input = x.d_input + row * x.columns;
  const float mean = kMean ? x.mean[row] : 0, reciprocal_std = x.reciprocal_std[row];
  const float columns = static_cast<float>(x.columns);
  float mean_g = 0, mean_gn = 0;
  for (std::int64_t i = threadIdx.x; i < x.columns; i += kThreads) {
    const float g = Wide(d_output[i]) * Wide(x.weight[i]);
    mean_g += g;
    mean_gn += g * ((Wide(input[i]) - mean) * reciprocal_std);
  }
  mean_g = kMean ? OverBlock(mean_g, Plus(), place) / columns : 0;
  mean_gn = OverBlock(mean_gn, Plus(), place) / columns;
  for (std::int64_t i = threadIdx.x; i < x.columns; i += kThreads) {
    const float normal = (Wide(input[i]) - mean) * reciprocal_std;
    const float g = Wide(d_output[i]) * Wide(x.weight[i]);
    const float d = reciprocal_std * (g - mean_g - normal * mean_gn);
    d_input[i] = Narrow<T>(x.accumulate ? Wide(d_input[i]) + d : d);
  }
}

template <bool kMean, class T>
void Forward(const Stream& stream, const NormArguments<T>& x) {
  if (x.rows > 0)
    Launch(stream, static_cast<unsigned>(x.rows), kThreads, 0, NormKernel<kMean, T>, x);
}

/// The weights' gradients come first, since d_input may be d_output.
template <bool kMean, class T>
void Backward(const Stream& stream, Room& room, const NormBackwardArguments<T>& x) {
  if (x.rows == 0) return;
  AddColumnSums(
      stream, room, x.rows, x.columns,
      [x] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t at = row * x.columns + column;
        const float mean = kMean ? x.mean[row] : 0;
        return Wide(x.d_output[at]) * ((Wide(x.input[at]) - mean) * x.reciprocal_std[row]);
      },
      x.d_weight);
  if constexpr (kMean)
    AddColumnSums(
        stream, room, x.rows, x.columns,
        [x] __device__(std::int64_t row, std::int64_t column) {
          return Wide(x.d_output[row * x.columns + column]);
        },
        x.d_bias);
  Launch(stream, static_cast<unsigned>(x.rows), kThreads, 0, NormBackwardKernel<kMean, T>, x);
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
