// Attention in tiles of queries and keys: scores live in registers and shared memory alone (Dao et
// al. 2022; Dao 2023). All arithmetic is in float32: for float32 itself, and for what the matrix
// units do not fit. Each output belongs to one block, which makes it in a fixed order.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_places.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/instances.h"
#include "kernels/cuda/matrix_attention.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr int kSide = 16;  // threads along each side of a tile
static_assert(kSide * kSide == kThreads);

/// Tiles of kRows queries or keys, whose rows have kHead entries; what a head has less is 0. A
/// thread has rows kPerSide * (thread / kSide) + i and, of kRows columns, columns thread % kSide +
/// kSide * j. Of kHead columns it has groups of four.
template <int kHead>
struct Tile {
  static constexpr int kRows = kHead <= 128 ? 64 : 32;
  static constexpr int kPerSide = kRows / kSide;
  static constexpr int kStride = kHead + 4;  // floats: rows begin in other banks
  static constexpr int kSquare = kRows + 4;  // of a tile of scores
  static constexpr int kQuads = kHead / 4 / kSide;
  static constexpr int kSize = kRows * kStride, kScores = kRows * kSquare;
};

/// Rows [begin, begin + kRows) of an array, 0 past its ends.
template <int kHead, class T>
__device__ void LoadTile(const HeadRows& rows, const T* array, std::int64_t begin, float* tile) {
  using Of = Tile<kHead>;
  for (int at = static_cast<int>(threadIdx.x); at < Of::kRows * kHead; at += kThreads) {
    const int row = at / kHead, column = at % kHead;
    const bool inside = begin + row < rows.count && column < rows.size;
    tile[row * Of::kStride + column] = inside ? Wide(rows.At(array, begin + row)[column]) : 0;
  }
}

/// A thread's part of a tile of scores, and of a tile of kHead columns.
template <int kHead>
using Scores = float[Tile<kHead>::kPerSide][Tile<kHead>::kPerSide];
template <int kHead>
using Heads = float[Tile<kHead>::kPerSide][Tile<kHead>::kQuads * 4];

__device__ inline int Column() { return static_cast<int>(threadIdx.x) % kSide; }
template <int kHead>
__device__ int FirstRow() {
  return static_cast<int>(threadIdx.x) / kSide * Tile<kHead>::kPerSide;
}

__device__ inline float4 Quad(const float* at) { return *reinterpret_cast<const float4*>(at); }
__device__ inline void AddDot(const float4& a, const float4& b, float& sum) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  sum = fmaf(a.w, b.w, sum);
}

/// scores[i][j] = a[row i] . b[row j]
template <int kHead>
__device__ void MultiplyRows(const float* a, const float* b, Scores<kHead>& scores) {
  using Of = Tile<kHead>;
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
#pragma unroll
    for (int j = 0; j < Of::kPerSide; ++j) scores[i][j] = 0;
  }
#pragma unroll 1
  for (int k = 0; k < kHead; k += 4) {
    float4 of_b[Of::kPerSide];
#pragma unroll
    for (int j = 0; j < Of::kPerSide; ++j)
      of_b[j] = Quad(b + (Column() + kSide * j) * Of::kStride + k);
#pragma unroll
    for (int i = 0; i < Of::kPerSide; ++i) {
      const float4 of_a = Quad(a + (FirstRow<kHead>() + i) * Of::kStride + k);
#pragma unroll
      for (int j = 0; j < Of::kPerSide; ++j) AddDot(of_a, of_b[j], scores[i][j]);
    }
  }
}

/// sums[i][.] += sum over k of weights[row i, k] rows[k, .]; of the transposed weights if asked.
template <int kHead, bool kTransposed>
__device__ void AddWeighted(const float* weights, const float* rows, Heads<kHead>& sums) {
  using Of = Tile<kHead>;
#pragma unroll 2
  for (int k = 0; k < Of::kRows; ++k) {
    float of_rows[Of::kPerSide];
#pragma unroll
    for (int i = 0; i < Of::kPerSide; ++i) {
      const int row = FirstRow<kHead>() + i;
      of_rows[i] = weights[kTransposed ? k * Of::kSquare + row : row * Of::kSquare + k];
    }
#pragma unroll
    for (int quad = 0; quad < Of::kQuads; ++quad) {
      const float4 value = Quad(rows + k * Of::kStride + 4 * (Column() + kSide * quad));
#pragma unroll
      for (int i = 0; i < Of::kPerSide; ++i) {
        float* const sum = sums[i] + 4 * quad;
        sum[0] = fmaf(of_rows[i], value.x, sum[0]);
        sum[1] = fmaf(of_rows[i], value.y, sum[1]);
        sum[2] = fmaf(of_rows[i], value.z, sum[2]);
        sum[3] = fmaf(of_rows[i], value.w, sum[3]);
      }
    }
  }
}

template <int kHead>
__device__ void ClearSums(Heads<kHead>& sums) {
#pragma unroll
  for (int i = 0; i < Tile<kHead>::kPerSide; ++i) {
#pragma unroll
    for (int c = 0; c < Tile<kHead>::kQuads * 4; ++c) sums[i][c] = 0;
  }
}

template <int kHead>
__device__ void PutScores(const Scores<kHead>& scores, float* square) {
  using Of = Tile<kHead>;
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
#pragma unroll
    for (int j = 0; j < Of::kPerSide; ++j)
      square[(FirstRow<kHead>() + i) * Of::kSquare + Column() + kSide * j] = scores[i][j];
  }
}

/// Stores factors[i] * sums[i] in the rows from `begin` on.
template <int kHead, class T>
__device__ void StoreRows(const HeadRows& rows, std::int64_t begin, const Heads<kHead>& sums,
                          const float (&factors)[Tile<kHead>::kPerSide], T* array) {
  using Of = Tile<kHead>;
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
    const std::int64_t row = begin + FirstRow<kHead>() + i;
    if (row >= rows.count) continue;
    T* const to = rows.At(array, row);
#pragma unroll
    for (int c = 0; c < Of::kQuads * 4; ++c) {
      const int column = 4 * (Column() + kSide * (c / 4)) + c % 4;
      if (column < rows.size) to[column] = Narrow<T>(factors[i] * sums[i][c]);
    }
  }
}

/// A block makes the output of kRows queries of one head.
template <int kHead, class T>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionArguments<T> x, float scale) {
  using Of = Tile<kHead>;
  float* const queries = DynamicShared<float>();
  float *const others = queries + Of::kSize, *const square = others + Of::kSize;
  const HeadPlace place = PlaceOf(x.shape, blockIdx.x);
  const std::int64_t begin = std::int64_t{blockIdx.y} * Of::kRows;
  Heads<kHead> sums;
  ClearSums<kHead>(sums);
  float largest[Of::kPerSide], denominator[Of::kPerSide];
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
    largest[i] = -INFINITY;
    denominator[i] = 0;
  }
  LoadTile<kHead>(place.Queries(), x.qkv, begin, queries);
  const std::int64_t end =
      x.shape.causal && begin + Of::kRows < x.shape.sequence ? begin + Of::kRows : x.shape.sequence;
  for (std::int64_t key = 0; key < end; key += Of::kRows) {
    __syncthreads();
    LoadTile<kHead>(place.Keys(), x.qkv, key, others);
    __syncthreads();
    Scores<kHead> scores;
    MultiplyRows<kHead>(queries, others, scores);
#pragma unroll
    for (int i = 0; i < Of::kPerSide; ++i) {
      const std::int64_t query = begin + FirstRow<kHead>() + i;
      float now = largest[i], sum = 0;
#pragma unroll
      for (int j = 0; j < Of::kPerSide; ++j) {
        scores[i][j] =
            Sees(x.shape, query, key + Column() + kSide * j) ? scale * scores[i][j] : -INFINITY;
        now = fmaxf(now, scores[i][j]);
      }
      now = OverLanes(now, Larger(), kSide);
      // Rows past the end see keys like the others; every query sees a key of the first tile.
#pragma unroll
      for (int j = 0; j < Of::kPerSide; ++j) {
        scores[i][j] = expf(scores[i][j] - now);
        sum += scores[i][j];
      }
      const float kept = expf(largest[i] - now);
      denominator[i] = denominator[i] * kept + OverLanes(sum, Plus(), kSide);
      largest[i] = now;
#pragma unroll
      for (int c = 0; c < Of::kQuads * 4; ++c) sums[i][c] *= kept;
    }
    PutScores<kHead>(scores, square);
    __syncthreads();
    LoadTile<kHead>(place.Values(), x.qkv, key, others);
    __syncthreads();
    AddWeighted<kHead, false>(square, others, sums);
  }
  float factors[Of::kPerSide];
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
    factors[i] = 1 / denominator[i];
    const std::int64_t query = begin + FirstRow<kHead>() + i;
    if (Column() == 0 && query < x.shape.sequence)
      x.log_sum_exp[place.PerQuery() + query] = largest[i] + logf(denominator[i]);
  }
  StoreRows<kHead>(place.Outputs(), begin, sums, factors, x.output);
}

/// Probabilities and the gradients of scores between tiles of queries and keys, into two squares of
/// [queries, keys]. means[query] = d_output . output.
template <int kHead, class T>
__device__ void DifferentiateScores(const AttentionBackwardArguments<T>& x, const HeadPlace& place,
                                    std::int64_t query, std::int64_t key, const float* queries,
                                    const float* keys, const float* values, const float* d_outputs,
                                    const float* means, float scale, float* probabilities,
                                    float* d_scores) {
  using Of = Tile<kHead>;
  Scores<kHead> scores, d_probabilities;
  MultiplyRows<kHead>(queries, keys, scores);
  MultiplyRows<kHead>(d_outputs, values, d_probabilities);
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
    const std::int64_t row = query + FirstRow<kHead>() + i;
    const bool inside = row < x.shape.sequence;
    const float log_sum_exp = inside ? x.log_sum_exp[place.PerQuery() + row] : 0;
    const float mean = inside ? means[place.PerQuery() + row] : 0;
#pragma unroll
    for (int j = 0; j < Of::kPerSide; ++j) {
      const bool sees = inside && Sees(x.shape, row, key + Column() + kSide * j);
      const float probability = sees ? expf(scale * scores[i][j] - log_sum_exp) : 0;
      scores[i][j] = probability;
      d_probabilities[i][j] = probability * (d_probabilities[i][j] - mean);
    }
  }
  if (probabilities != nullptr) PutScores<kHead>(scores, probabilities);
  PutScores<kHead>(d_probabilities, d_scores);
}

/// A block makes the gradients of kRows keys and values of one head, over all queries that see
/// them.
template <int kHead, class T>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(AttentionBackwardArguments<T> x, const float* means, float scale) {
  using Of = Tile<kHead>;
  float* const keys = DynamicShared<float>();
  float *const values = keys + Of::kSize, *const queries = values + Of::kSize;
  float *const d_outputs = queries + Of::kSize, *const probabilities = d_outputs + Of::kSize;
  float* const d_scores = probabilities + Of::kScores;
  const AttentionShape& shape = x.shape;
  const std::int64_t per_head = shape.heads / shape.kv_heads;
  const std::int64_t sample = blockIdx.x / shape.kv_heads, kv_head = blockIdx.x % shape.kv_heads;
  const std::int64_t key = std::int64_t{blockIdx.y} * Of::kRows;
  HeadPlace place{shape, sample, 0, kv_head};
  Heads<kHead> d_keys, d_values;
  ClearSums<kHead>(d_keys);
  ClearSums<kHead>(d_values);
  LoadTile<kHead>(place.Keys(), x.qkv, key, keys);
  LoadTile<kHead>(place.Values(), x.qkv, key, values);
  for (std::int64_t h = 0; h < per_head; ++h) {
    place.head = kv_head * per_head + h;
    for (std::int64_t query = shape.causal ? key : 0; query < shape.sequence; query += Of::kRows) {
      __syncthreads();
      LoadTile<kHead>(place.Queries(), x.qkv, query, queries);
      LoadTile<kHead>(place.Outputs(), x.d_output, query, d_outputs);
      __syncthreads();
      DifferentiateScores<kHead>(x, place, query, key, queries, keys, values, d_outputs, means,
                                 scale, probabilities, d_scores);
      __syncthreads();
      AddWeighted<kHead, true>(probabilities, d_outputs, d_values);
      AddWeighted<kHead, true>(d_scores, queries, d_keys);
    }
  }
  float of_keys[Of::kPerSide], of_values[Of::kPerSide];
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) {
    of_keys[i] = scale;
    of_values[i] = 1;
  }
  StoreRows<kHead>(place.Keys(), key, d_keys, of_keys, x.d_qkv);
  StoreRows<kHead>(place.Values(), key, d_values, of_values, x.d_qkv);
}

/// A block makes the gradients of kRows queries of one head, over all keys that they see.
template <int kHead, class T>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(AttentionBackwardArguments<T> x, const float* means, float scale) {
  using Of = Tile<kHead>;
  float* const queries = DynamicShared<float>();
  float *const d_outputs = queries + Of::kSize, *const keys = d_outputs + Of::kSize;
  float *const values = keys + Of::kSize, *const d_scores = values + Of::kSize;
  const HeadPlace place = PlaceOf(x.shape, blockIdx.x);
  const std::int64_t query = std::int64_t{blockIdx.y} * Of::kRows;
  Heads<kHead> d_queries;
  ClearSums<kHead>(d_queries);
  LoadTile<kHead>(place.Queries(), x.qkv, query, queries);
  LoadTile<kHead>(place.Outputs(), x.d_output, query, d_outputs);
  for (std::int64_t key = 0; key < x.shape.sequence; key += Of::kRows) {
    if (x.shape.causal && key >= query + Of::kRows) break;
    __syncthreads();
    LoadTile<kHead>(place.Keys(), x.qkv, key, keys);
    LoadTile<kHead>(place.Values(), x.qkv, key, values);
    __syncthreads();
    DifferentiateScores<kHead>(x, place, query, key, queries, keys, values, d_outputs, means, scale,
                               nullptr, d_scores);
    __syncthreads();
    AddWeighted<kHead, false>(d_scores, keys, d_queries);
  }
  float factors[Of::kPerSide];
#pragma unroll
  for (int i = 0; i < Of::kPerSide; ++i) factors[i] = scale;
  StoreRows<kHead>(place.Queries(), query, d_queries, factors, x.d_qkv);
}

constexpr int kMeanLanes = 8;  // of a query

/// means[query] = d_output . output: kMeanLanes lanes a query, which read kWidth neighbours at
/// once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    MeansKernel(AttentionBackwardArguments<T> x, std::int64_t queries, float* means) {
  const std::int64_t index =
      std::int64_t{blockIdx.x} * (kThreads / kMeanLanes) + threadIdx.x / kMeanLanes;
  const int lane = static_cast<int>(threadIdx.x) % kMeanLanes;
  float sum = 0;
  if (index < queries) {
    const AttentionShape& shape = x.shape;
    const std::int64_t row = index % shape.sequence;
    const HeadRows rows = PlaceOf(shape, index / shape.sequence).Outputs();
    const T *const output = rows.At(x.output, row), *const d_output = rows.At(x.d_output, row);
    for (int i = lane * kWidth; i < rows.size; i += kMeanLanes * kWidth) {
      const auto a = Load<kWidth>(d_output + i), b = Load<kWidth>(output + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum = fmaf(Wide(a.at[j]), Wide(b.at[j]), sum);
    }
  }
  sum = OverLanes(sum, Plus(), kMeanLanes);
  if (lane == 0 && index < queries) means[index] = sum;
}

template <int kHead>
dim3 Blocks(const AttentionShape& shape, std::int64_t heads) {
  return {static_cast<unsigned>(shape.batch * heads),
          static_cast<unsigned>(Pieces(shape.sequence, Tile<kHead>::kRows)), 1};
}

template <int kHead, class T>
void Forward(const Stream& stream, const AttentionArguments<T>& x) {
  using Of = Tile<kHead>;
  Launch(stream, Blocks<kHead>(x.shape, x.shape.heads), kThreads,
         (2 * Of::kSize + Of::kScores) * sizeof(float), AttentionKernel<kHead, T>, x,
         ScaleOf(x.shape));
}

template <int kHead, class T>
void Backward(const Stream& stream, const AttentionBackwardArguments<T>& x, const float* means) {
  using Of = Tile<kHead>;
  Launch(stream, Blocks<kHead>(x.shape, x.shape.kv_heads), kThreads,
         (4 * Of::kSize + 2 * Of::kScores) * sizeof(float), KeyGradientKernel<kHead, T>, x, means,
         ScaleOf(x.shape));
  Launch(stream, Blocks<kHead>(x.shape, x.shape.heads), kThreads,
         (4 * Of::kSize + Of::kScores) * sizeof(float), QueryGradientKernel<kHead, T>, x, means,
         ScaleOf(x.shape));
}

bool IsEmpty(const AttentionShape& shape) {
  return shape.batch == 0 || shape.sequence == 0 || shape.head_size == 0;
}

constexpr std::int64_t kLargestHead = 256;

void RequireHeadSize(const AttentionShape& shape) {
  if (shape.head_size > kLargestHead)
    throw CudaFailure("GPU, attention: heads of " + std::to_string(shape.head_size) +
                      " entries; at most " + std::to_string(kLargestHead) + " are possible");
}

}  // namespace

template <class T>
void CudaDevice<T>::Attention(const AttentionArguments<T>& x) {
  stream_.Begin("Attention");
  if (IsEmpty(x.shape) || x.shape.heads == 0) return;
  RequireHeadSize(x.shape);
  if constexpr (!std::is_same_v<T, float>) {
    if (FitsMatrixUnits(stream_, x.shape)) return MatrixAttention(stream_, x);
  }
  if (x.shape.head_size <= 64) {
    Forward<64>(stream_, x);
  } else if (x.shape.head_size <= 128) {
    Forward<128>(stream_, x);
  } else {
    Forward<256>(stream_, x);
  }
}

template <class T>
void CudaDevice<T>::AttentionBackward(const AttentionBackwardArguments<T>& x) {
  stream_.Begin("AttentionBackward");
  const AttentionShape& shape = x.shape;
  if (IsEmpty(shape)) return;
  RequireHeadSize(shape);
  if (shape.heads == 0)
    return Clear(x.d_qkv, static_cast<std::size_t>(shape.batch * shape.sequence * 2 *
                                                   shape.kv_heads * shape.head_size) *
                              sizeof(T));
  const std::int64_t queries = shape.batch * shape.heads * shape.sequence;
  float* const means = scratch_.For<float>(queries);
  constexpr int kWidth = 16 / sizeof(T);
  Launch(stream_, static_cast<unsigned>(Pieces(queries, kThreads / kMeanLanes)), kThreads, 0,
         AreAligned(kWidth, shape.head_size, x.output, x.d_output) ? MeansKernel<kWidth, T>
                                                                   : MeansKernel<1, T>,
         x, queries, means);
  if constexpr (!std::is_same_v<T, float>) {
    if (FitsMatrixUnits(stream_, shape)) return MatrixAttentionBackward(stream_, x, means);
  }
  if (shape.head_size <= 64) {
    Backward<64>(stream_, x, means);
  } else if (shape.head_size <= 128) {
    Backward<128>(stream_, x, means);
  } else {
    Backward<256>(stream_, x, means);
  }
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Attention, AttentionArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(AttentionBackward, AttentionBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
