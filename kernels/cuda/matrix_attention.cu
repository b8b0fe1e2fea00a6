// FlashAttention (Dao 2023) on the matrix units. A warp has 16 rows of its own: queries, or keys
// where these get their gradients. Tiles of the other rows pass by in shared memory, the next one
// on its way. Scores stay in registers: a product's sums are laid out as the next one's left
// operand.
#include "kernels/cuda/matrix_attention.h"

#include <type_traits>

#include "kernels/cuda/attention_places.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/matrix_tiles.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634F;

__device__ inline int TilesOf(int rows) { return (rows + kTileRows - 1) / kTileRows; }

/// Which queries see which keys of a sequence.
struct Sight {
  int sequence;
  bool causal;

  __device__ explicit Sight(const AttentionShape& shape)
      : sequence(static_cast<int>(shape.sequence)), causal(shape.causal) {}

  __device__ bool Sees(int query, int key) const {
    return key < sequence && (!causal || key <= query);
  }
  /// Whether all queries from `query` on see the `keys` keys from `key` on.
  __device__ bool SeeAll(int query, int key, int keys) const {
    return key + keys <= sequence && (!causal || key + keys - 1 <= query);
  }
  /// Tiles of keys that some query below `end` sees.
  __device__ int KeyTiles(int end) const {
    return TilesOf(causal && end < sequence ? end : sequence);
  }
};

/// The first of a block's own rows, of the `block`-th block.
__device__ inline int FirstOf(unsigned block) { return static_cast<int>(block) * kOwnRows; }
/// The first of the warp's.
__device__ inline int FirstOfWarp(int begin) {
  return begin + static_cast<int>(threadIdx.x) / kWarp * kOwnOfWarp;
}

/// body(row, column, sum) for a product's sums that are the lane's.
template <int kCount, class Body>
__device__ void ForScores(SumFragment (&sums)[kCount], const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      body(lane / 4 + i / 2 * 8, 8 * n + 2 * (lane % 4) + i % 2, sums[n][i]);
  }
}

/// Softmax over tiles of scores that pass by (Milakov, Gimelshein 2018), of the lane's two rows.
struct RunningSoftmax {
  float log_scale;  // of scores, to base 2
  float largest[2] = {-INFINITY, -INFINITY}, denominators[2] = {0, 0};

  /// Scores become exponentials, and the outputs so far are scaled to the same base. The warp's
  /// lanes call it together.
  template <int kScoreParts, int kOutputParts>
  __device__ void Apply(SumFragment (&scores)[kScoreParts], SumFragment (&outputs)[kOutputParts]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = largest[half], sum = 0;
#pragma unroll
      for (int n = 0; n < kScoreParts; ++n)
        now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      now = OverLanes(now, Larger(), 4);
      // Most tiles have no larger score than those before.
      const bool same = __all_sync(kAllLanes, now == largest[half] ? 1 : 0) != 0;
      const float least = now == -INFINITY ? 0 : log_scale * now;
      if (!same) {
        const float kept = PowerOfTwo(fmaf(log_scale, largest[half], -least));
        denominators[half] *= kept;
        largest[half] = now;
#pragma unroll
        for (int n = 0; n < kOutputParts; ++n) {
          outputs[n][2 * half] *= kept;
          outputs[n][2 * half + 1] *= kept;
        }
      }
#pragma unroll
      for (int n = 0; n < kScoreParts; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = PowerOfTwo(fmaf(log_scale, scores[n][i], -least));
          sum += scores[n][i];
        }
      }
      denominators[half] += sum;
    }
  }
};

/// A block makes the output of kOwnRows queries of one head; those that see most begin.
template <int kHead, class T>
__global__ void __launch_bounds__(kBlock, kHead <= 64 ? 4 : 2)
    MatrixAttentionKernel(AttentionArguments<T> x, float scale, bool aligned) {
  const Passing<kHead, T> passing{DynamicShared<T>()};
  const AttentionShape& shape = x.shape;
  const Sight sight(shape);
  const HeadPlace place = PlaceOf(shape, blockIdx.x);
  const int begin = FirstOf(gridDim.y - 1 - blockIdx.y), own = FirstOfWarp(begin);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const OwnRows<kHead, T> queries(place.Queries(), x.qkv, own);
  Sums<kHead> outputs;
  ClearSums<kHead>(outputs);
  RunningSoftmax softmax{scale * kLog2E};
  const auto load = [&](int turn) {
    LoadTile<kHead>(place.Keys(), x.qkv, turn * kTileRows, aligned, passing.First(turn));
    LoadTile<kHead>(place.Values(), x.qkv, turn * kTileRows, aligned, passing.Second(turn));
  };
  ForTurns(sight.KeyTiles(begin + kOwnRows), load, [&](int turn) {
    const int key = turn * kTileRows;
    if (sight.causal && key >= own + kOwnOfWarp) return;
    Sums<kTileRows> scores;
    MultiplyRows<kHead, kTileRows>(queries, passing.First(turn), 0, scores);
    // Rows past the end see keys like the others; every query sees a key of the first tile.
    if (!sight.SeeAll(own, key, kTileRows)) {
      ForScores(scores, [&](int row, int column, float& score) {
        if (!sight.Sees(own + row, key + column)) score = -INFINITY;
      });
    }
    softmax.Apply(scores, outputs);
#pragma unroll
    for (int k = 0; k < kTileRows / 16; ++k) {
      LeftFragment probabilities;
      ToLeft<T>(scores[2 * k], scores[2 * k + 1], probabilities);
      AddWeighted<kHead>(probabilities, passing.Second(turn), 16 * k, outputs);
    }
  });
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float denominator = OverLanes(softmax.denominators[half], Plus(), 4);
    const int query = own + lane / 4 + 8 * half;
    factors[half] = 1 / denominator;
    if (lane % 4 == 0 && query < shape.sequence)
      x.log_sum_exp[place.PerQuery() + query] = scale * softmax.largest[half] + logf(denominator);
  }
  StoreRows<kHead>(place.Outputs(), own, aligned, outputs, factors, x.output);
}

/// A score and d_probability = d_output . value become a probability and the score's gradient,
/// without the scale. Logarithms and log_scale are to base 2. Rows past the end give no gradients,
/// whatever comes out: what these would be multiplied by is 0.
__device__ inline void Differentiate(float log_scale, float log_sum_exp, float mean, float& score,
                                     float& d_probability) {
  score = PowerOfTwo(fmaf(log_scale, score, -log_sum_exp));
  d_probability = score * (d_probability - mean);
}

/// What each query of two tiles that pass by has one of: the logarithm of its exponentials' sum,
/// and the mean of its gradients; 0 past the end.
struct PassingQueries {
  float* memory;

  static constexpr std::size_t kBytes = 4 * kTileRows * sizeof(float);

  __device__ float* LogSumExps(int turn) const { return memory + turn % 2 * kTileRows; }
  __device__ float* Means(int turn) const { return memory + (2 + turn % 2) * kTileRows; }
  __device__ void Load(int turn, const float* log_sum_exps, const float* means, int begin,
                       int count) const {
    static_assert(kBlock >= 2 * kTileRows);
    const int row = static_cast<int>(threadIdx.x) % kTileRows;
    const bool first = threadIdx.x < kTileRows, has = begin + row < count;
    if (threadIdx.x >= 2 * kTileRows) return;
    const float* const from = first ? log_sum_exps : means;
    BeginCopy((first ? LogSumExps(turn) : Means(turn)) + row, has ? from + begin + row : from, has);
  }
};

/// How many others' scores a warp of gradients has at a time: a left operand's columns.
constexpr int kScores = 16;

/// A block makes the gradients of kOwnRows keys and values of one head, over all queries that see
/// them.
template <int kHead, class T>
__global__ void __launch_bounds__(kBlock, kHead <= 64 ? 3 : 2)
    MatrixKeyGradientKernel(AttentionBackwardArguments<T> x, const float* means, float scale,
                            bool aligned) {
  const Passing<kHead, T> passing{DynamicShared<T>()};
  const PassingQueries of_queries{
      reinterpret_cast<float*>(DynamicShared<std::byte>() + Passing<kHead, T>::kBytes)};
  const float log_scale = scale * kLog2E;
  const AttentionShape& shape = x.shape;
  const int per_head = static_cast<int>(shape.heads / shape.kv_heads);
  HeadPlace place{shape, blockIdx.x / shape.kv_heads, 0, blockIdx.x % shape.kv_heads};
  const Sight sight(shape);
  const int begin = FirstOf(blockIdx.y), own = FirstOfWarp(begin);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const OwnRows<kHead, T> keys(place.Keys(), x.qkv, own), values(place.Values(), x.qkv, own);
  Sums<kHead> d_keys, d_values;
  ClearSums<kHead>(d_keys);
  ClearSums<kHead>(d_values);
  // Queries before the first key of a causal block see none of its keys.
  const int first = sight.causal ? begin / kTileRows : 0;
  for (int h = 0; h < per_head; ++h) {
    place.head = place.kv_head * per_head + h;
    const auto load = [&](int turn) {
      const int query = (first + turn) * kTileRows;
      LoadTile<kHead>(place.Queries(), x.qkv, query, aligned, passing.First(turn));
      LoadTile<kHead>(place.Outputs(), x.d_output, query, aligned, passing.Second(turn));
      of_queries.Load(turn, x.log_sum_exp + place.PerQuery(), means + place.PerQuery(), query,
                      sight.sequence);
    };
    ForTurns(TilesOf(sight.sequence) - first, load, [&](int turn) {
      const int query = (first + turn) * kTileRows;
      if (sight.causal && query + kTileRows <= own) return;
#pragma unroll 1
      for (int some = 0; some < kTileRows; some += kScores) {
        Sums<kScores> scores, d_scores;
        MultiplyRows<kHead, kScores>(keys, passing.First(turn), some, scores);
        MultiplyRows<kHead, kScores>(values, passing.Second(turn), some, d_scores);
#pragma unroll
        for (int n = 0; n < kScores / 8; ++n) {
          const int column = some + 8 * n + 2 * (lane % 4);
          const auto log_sum_exps = Load<2>(of_queries.LogSumExps(turn) + column);
          const auto of_means = Load<2>(of_queries.Means(turn) + column);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            Differentiate(log_scale, kLog2E * log_sum_exps.at[i % 2], of_means.at[i % 2],
                          scores[n][i], d_scores[n][i]);
        }
        if (!sight.SeeAll(query + some, own, kOwnOfWarp)) {
          const auto clear_unseen = [&](int row, int column, float& score) {
            if (!sight.Sees(query + some + column, own + row)) score = 0;
          };
          ForScores(scores, clear_unseen);
          ForScores(d_scores, clear_unseen);
        }
        LeftFragment weights;
        ToLeft<T>(scores[0], scores[1], weights);
        AddWeighted<kHead>(weights, passing.Second(turn), some, d_values);
        ToLeft<T>(d_scores[0], d_scores[1], weights);
        AddWeighted<kHead>(weights, passing.First(turn), some, d_keys);
      }
    });
  }
  StoreRows<kHead>(place.Keys(), own, aligned, d_keys, {scale, scale}, x.d_qkv);
  StoreRows<kHead>(place.Values(), own, aligned, d_values, {1, 1}, x.d_qkv);
}

/// A block makes the gradients of kOwnRows queries of one head, over all keys that they see.
template <int kHead, class T>
__global__ void __launch_bounds__(kBlock, kHead <= 64 ? 4 : 2)
    MatrixQueryGradientKernel(AttentionBackwardArguments<T> x, const float* means, float scale,
                              bool aligned) {
  const Passing<kHead, T> passing{DynamicShared<T>()};
  const AttentionShape& shape = x.shape;
  const Sight sight(shape);
  const HeadPlace place = PlaceOf(shape, blockIdx.x);
  const int begin = FirstOf(gridDim.y - 1 - blockIdx.y), own = FirstOfWarp(begin);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const OwnRows<kHead, T> queries(place.Queries(), x.qkv, own),
      d_outputs(place.Outputs(), x.d_output, own);
  Sums<kHead> d_queries;
  ClearSums<kHead>(d_queries);
  float log_sum_exp[2] = {0, 0}, mean[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = own + lane / 4 + 8 * half;
    if (query >= sight.sequence) continue;
    log_sum_exp[half] = kLog2E * x.log_sum_exp[place.PerQuery() + query];
    mean[half] = means[place.PerQuery() + query];
  }
  const auto load = [&](int turn) {
    LoadTile<kHead>(place.Keys(), x.qkv, turn * kTileRows, aligned, passing.First(turn));
    LoadTile<kHead>(place.Values(), x.qkv, turn * kTileRows, aligned, passing.Second(turn));
  };
  ForTurns(sight.KeyTiles(begin + kOwnRows), load, [&](int turn) {
    const int key = turn * kTileRows;
    if (sight.causal && key >= own + kOwnOfWarp) return;
#pragma unroll 1
    for (int some = 0; some < kTileRows; some += kScores) {
      Sums<kScores> scores, d_scores;
      MultiplyRows<kHead, kScores>(queries, passing.First(turn), some, scores);
      MultiplyRows<kHead, kScores>(d_outputs, passing.Second(turn), some, d_scores);
#pragma unroll
      for (int n = 0; n < kScores / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          Differentiate(scale * kLog2E, log_sum_exp[i / 2], mean[i / 2], scores[n][i],
                        d_scores[n][i]);
      }
      if (!sight.SeeAll(own, key + some, kScores)) {
        ForScores(d_scores, [&](int row, int column, float& score) {
          if (!sight.Sees(own + row, key + some + column)) score = 0;
        });
      }
      LeftFragment weights;
      ToLeft<T>(d_scores[0], d_scores[1], weights);
      AddWeighted<kHead>(weights, passing.First(turn), some, d_queries);
    }
  });
  StoreRows<kHead>(place.Queries(), own, aligned, d_queries, {scale, scale}, x.d_qkv);
}

dim3 Blocks(const AttentionShape& shape, std::int64_t heads) {
  return {static_cast<unsigned>(shape.batch * heads),
          static_cast<unsigned>(Pieces(shape.sequence, kOwnRows)), 1};
}

/// Whether parts of rows are aligned to their size.
bool Aligned(const AttentionShape& shape, std::initializer_list<const void*> arrays) {
  std::uintptr_t bits = static_cast<std::uintptr_t>(shape.head_size) * 2;
  for (const void* array : arrays) bits |= reinterpret_cast<std::uintptr_t>(array);
  return bits % (kPart * 2) == 0;
}

template <int kHead, class T>
void Forward(const Stream& stream, const AttentionArguments<T>& x) {
  Launch(stream, Blocks(x.shape, x.shape.heads), kBlock, Passing<kHead, T>::kBytes,
         MatrixAttentionKernel<kHead, T>, x, ScaleOf(x.shape), Aligned(x.shape, {x.qkv, x.output}));
}

template <int kHead, class T>
void Backward(const Stream& stream, const AttentionBackwardArguments<T>& x, const float* means) {
  const bool aligned = Aligned(x.shape, {x.qkv, x.d_output, x.d_qkv});
  Launch(stream, Blocks(x.shape, x.shape.kv_heads), kBlock,
         Passing<kHead, T>::kBytes + PassingQueries::kBytes, MatrixKeyGradientKernel<kHead, T>, x,
         means, ScaleOf(x.shape), aligned);
  Launch(stream, Blocks(x.shape, x.shape.heads), kBlock, Passing<kHead, T>::kBytes,
         MatrixQueryGradientKernel<kHead, T>, x, means, ScaleOf(x.shape), aligned);
}

}  // namespace

bool FitsMatrixUnits(const Stream& stream, const AttentionShape& shape) {
  int major = 0;
  stream.Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.ordinal()));
  return major >= 8 && shape.head_size <= 128;
}

template <class T>
void MatrixAttention(const Stream& stream, const AttentionArguments<T>& x) {
  x.shape.head_size <= 64 ? Forward<64>(stream, x) : Forward<128>(stream, x);
}

template <class T>
void MatrixAttentionBackward(const Stream& stream, const AttentionBackwardArguments<T>& x,
                             const float* means) {
  x.shape.head_size <= 64 ? Backward<64>(stream, x, means) : Backward<128>(stream, x, means);
}

template void MatrixAttention(const Stream&, const AttentionArguments<BFloat16>&);
template void MatrixAttention(const Stream&, const AttentionArguments<Float16>&);
template void MatrixAttentionBackward(const Stream&, const AttentionBackwardArguments<BFloat16>&,
                                      const float*);
template void MatrixAttentionBackward(const Stream&, const AttentionBackwardArguments<Float16>&,
                                      const float*);

}  // namespace adaptive_train::kernels::cuda
