// The embedding, and its gradient row by row of each weight: no two threads add to one place.
#include "kernels/embedding.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/instances.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// A warp makes a row.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    EmbeddingKernel(EmbeddingArguments<T> x, std::int64_t rows) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const std::int32_t id = x.tokens[row];
  for (std::int64_t i = threadIdx.x % kWarp * kWidth; i < x.columns; i += kWarp * kWidth) {
    Neighbours<T, kWidth> token = {}, position = {}, type = {}, output;
    if (id >= 0) token = Load<kWidth>(x.token_weight + id * x.columns + i);
    if (x.position_weight != nullptr)
      position = Load<kWidth>(x.position_weight + row % x.sequence * x.columns + i);
    if (x.type_weight != nullptr) type = Load<kWidth>(x.type_weight + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float of_token = Wide(token.at[j]);
      const float others = Wide(position.at[j]);
      const float sum = x.token_last ? others + Wide(type.at[j]) + of_token
                                     : of_token + others + Wide(type.at[j]);
      output.at[j] = Narrow<T>(sum);
    }
    Store(output, x.output + row * x.columns + i);
  }
}

/// The block of the first row that has a token adds all rows that have it, in ascending order. The
/// others' blocks end once they have seen an earlier one.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) TokenGradientKernel(EmbeddingBackwardArguments<T> x) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ std::int32_t found[kThreads];  // rows of the piece, ascending
  __shared__ int of_warps[kWarps];
  const std::int64_t rows = x.batch * x.sequence, own = blockIdx.x;
  const std::int32_t token = x.tokens[own];
  if (token < 0) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  float* const d_weight = x.d_token_weight + token * x.columns;
  for (std::int64_t first = 0; first < rows; first += kThreads) {
    const std::int64_t row = first + thread;
    const bool has = row < rows && x.tokens[row] == token;
    const unsigned lanes = __ballot_sync(kAllLanes, has);
    if (lane == 0) of_warps[warp] = __popc(lanes);
    if (__syncthreads_or(has && row < own)) return;
    int before = 0, all = 0;
    for (int other = 0; other < kWarps; ++other) {
      before += other < warp ? of_warps[other] : 0;
      all += of_warps[other];
    }
    if (has) found[before + __popc(lanes & ((1U << lane) - 1))] = static_cast<std::int32_t>(row);
    __syncthreads();
    for (std::int64_t column = thread * kWidth; all > 0 && column < x.columns;
         column += kThreads * kWidth) {
      Neighbours<float, kWidth> sums = Load<kWidth>(d_weight + column);
#pragma unroll 4
      for (int i = 0; i < all; ++i) {
        const auto values = Load<kWidth>(x.d_output + found[i] * x.columns + column);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums.at[j] += Wide(values.at[j]);
      }
      Store(sums, d_weight + column);
    }
    __syncthreads();
  }
}

}  // namespace

template <class T>
void CudaDevice<T>::Embedding(const EmbeddingArguments<T>& x) {
  stream_.Begin("Embedding");
  const std::int64_t rows = x.batch * x.sequence;
  if (rows == 0 || x.columns == 0) return;
  Launch(stream_, static_cast<unsigned>(Pieces(rows, kThreads / kWarp)), kThreads, 0,
         AreAligned(4, x.columns, x.token_weight, x.position_weight, x.type_weight, x.output)
             ? EmbeddingKernel<4, T>
             : EmbeddingKernel<1, T>,
         x, rows);
}

template <class T>
void CudaDevice<T>::EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) {
  stream_.Begin("EmbeddingBackward");
  const std::int64_t rows = x.batch * x.sequence;
  if (rows == 0 || x.columns == 0) return;
  if (x.d_token_weight != nullptr)
    Launch(stream_, static_cast<unsigned>(rows), kThreads, 0,
           AreAligned(4, x.columns, x.d_token_weight, x.d_output) ? TokenGradientKernel<4, T>
                                                                  : TokenGradientKernel<1, T>,
           x);
  if (x.d_position_weight != nullptr)
    ForElements(stream_, x.sequence * x.columns, [x] __device__(std::int64_t at) {
      float sum = x.d_position_weight[at];
      for (std::int64_t sample = 0; sample < x.batch; ++sample)
        sum += Wide(x.d_output[sample * x.sequence * x.columns + at]);
      x.d_position_weight[at] = sum;
    });
  if (x.d_type_weight != nullptr)
    AddRows(stream_, partial_, rows, x.columns, x.columns, x.d_output, 1, x.d_type_weight);
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Embedding, EmbeddingArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(EmbeddingBackward, EmbeddingBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
