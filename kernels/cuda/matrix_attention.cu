// FlashAttention (Dao 2023) on the matrix units. A warp has 16 rows of its own: queries, or keys
// where these get their gradients. Tiles of the other rows pass by in shared memory, the next one
// on its way. Scores stay in registers: a product's sums are laid out as the next one's left
// operand.
#include "kernels/cuda/matrix_attention.h"

#include <type_traits>
#include <utility>

#include "kernels/cuda/attention_places.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/matrix_units.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr int kBlock = 128;  // threads
constexpr int kOwnOfWarp = 16, kOwnRows = kOwnOfWarp * (kBlock / kWarp);
constexpr int kTileRows = 64;  // of the others
constexpr int kPart = 8;       // numbers of 16 bits that are copied at once
constexpr float kLog2E = 1.4426950408889634F;

/// A tile of kTileRows rows in shared memory. Parts of a row change places by its number, so that
/// eight rows' parts lie in other banks.
template <int kHead, class T>
struct SharedTile {
  static constexpr int kParts = kHead / kPart;

  T* rows;

  /// Part `even` + `odd` of row `eighth` + `row`: `eighth` is a multiple of 8, `even` of 2, and
  /// `odd` 0 or 1. What depends on the lane alone is apart from what loops go over.
  __device__ T* Part(int eighth, int row, int even, int odd) const {
    return rows + eighth * kHead + row * kHead + ((odd ^ (row & 7)) ^ even) * kPart;
  }
};

/// Begins to load rows [begin, begin + kTileRows) of an array, 0 past its ends. `aligned`: parts of
/// rows are aligned to their size.
template <int kHead, class T>
__device__ void LoadTile(const HeadRows& rows, const T* array, int begin, bool aligned,
                         const SharedTile<kHead, T>& tile) {
  constexpr int kParts = SharedTile<kHead, T>::kParts, kAtOnce = kBlock / kParts;
  static_assert(kAtOnce % 8 == 0);
  const int part = static_cast<int>(threadIdx.x) % kParts;
  const int row = static_cast<int>(threadIdx.x) / kParts;
  const T* from = rows.At(array, begin + row) + part * kPart;
  const std::int64_t step = kAtOnce * rows.stride;
  const int left = static_cast<int>(rows.count) - begin - row, columns = rows.size - part * kPart;
  T* const to = tile.Part(0, row, part & ~1, part & 1);
  if (aligned && rows.size == kHead && begin + kTileRows <= rows.count) {
#pragma unroll
    for (int i = 0; i < kTileRows; i += kAtOnce, from += step)
      BeginCopy(to + i * kHead, from, true);
  } else if (aligned) {
#pragma unroll 1
    for (int i = 0; i < kTileRows; i += kAtOnce, from += step) {
      const bool has = i < left && columns > 0;
      BeginCopy(to + i * kHead, has ? from : array, has);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kTileRows; i += kAtOnce, from += step) {
#pragma unroll 1
      for (int j = 0; j < kPart; ++j)
        to[i * kHead + j] = i < left && j < columns ? from[j] : Narrow<T>(0);
    }
  }
}

/// The warp's rows of an array as left operands, each of 16 columns.
template <int kHead, class T>
struct OwnRows {
  LeftFragment of_columns[kHead / 16];

  __device__ OwnRows(const HeadRows& rows, const T* array, int first) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + lane / 4 + i % 2 * 8;
        const int column = 16 * k + 2 * (lane % 4) + i / 2 * 8;
        of_columns[k][i] = 0;
        if (row >= rows.count) continue;
        const T* const from = rows.At(array, row) + column;
        if (column < rows.size) of_columns[k][i] = from[0].bits;
        if (column + 1 < rows.size) of_columns[k][i] |= static_cast<unsigned>(from[1].bits) << 16;
      }
    }
  }
};

/// A product's sums of kColumns columns, eight at a time.
template <int kColumns>
using Sums = SumFragment[kColumns / 8];

template <int kColumns>
__device__ void ClearSums(Sums<kColumns>& sums) {
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
}

/// Right operands are loaded so many at a time, before the first is used: a load takes as long as
/// several products.
constexpr int kLoadedAtOnce = 4;

/// sums[., j] = own row . other row first + j, for kColumns others.
template <int kHead, int kColumns, class T>
__device__ void MultiplyRows(const OwnRows<kHead, T>& own, const SharedTile<kHead, T>& others,
                             int first, Sums<kColumns>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr SumFragment kZero = {0, 0, 0, 0};
  constexpr int kAcross = kColumns / 16, kAll = kHead / 16 * kAcross;
  static_assert(kAll % kLoadedAtOnce == 0);
#pragma unroll
  for (int some = 0; some < kAll; some += kLoadedAtOnce) {
    unsigned loaded[kLoadedAtOnce][4];
#pragma unroll
    for (int i = 0; i < kLoadedAtOnce; ++i)
      LoadMatrices(others.Part(first + 16 * ((some + i) % kAcross), lane / 16 * 8 + lane % 8,
                               2 * ((some + i) / kAcross), lane / 8 % 2),
                   loaded[i]);
#pragma unroll
    for (int i = 0; i < kLoadedAtOnce; ++i) {
      const int n = (some + i) % kAcross, k = (some + i) / kAcross;
      const SumFragment& low = k == 0 ? kZero : std::as_const(sums[2 * n]);
      const SumFragment& high = k == 0 ? kZero : std::as_const(sums[2 * n + 1]);
      MultiplyAdd<T>(own.of_columns[k], {loaded[i][0], loaded[i][1]}, low, sums[2 * n]);
      MultiplyAdd<T>(own.of_columns[k], {loaded[i][2], loaded[i][3]}, high, sums[2 * n + 1]);
    }
  }
}

/// sums += weights others, for the 16 others from `first` on.
template <int kHead, class T>
__device__ void AddWeighted(const LeftFragment& weights, const SharedTile<kHead, T>& others,
                            int first, Sums<kHead>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int some = 0; some < kHead / 16; some += kLoadedAtOnce) {
    unsigned loaded[kLoadedAtOnce][4];
#pragma unroll
    for (int i = 0; i < kLoadedAtOnce; ++i)
      LoadTransposed(others.Part(first, lane % 16, 2 * (some + i), lane / 16), loaded[i]);
#pragma unroll
    for (int i = 0; i < kLoadedAtOnce; ++i) {
      SumFragment &low = sums[2 * (some + i)], &high = sums[2 * (some + i) + 1];
      MultiplyAdd<T>(weights, {loaded[i][0], loaded[i][1]}, low, low);
      MultiplyAdd<T>(weights, {loaded[i][2], loaded[i][3]}, high, high);
    }
  }
}

/// Sums of 16 columns as a left operand in T.
template <class T>
__device__ void ToLeft(const SumFragment& low, const SumFragment& high, LeftFragment& left) {
  left[0] = Pack<T>(low[0], low[1]);
  left[1] = Pack<T>(low[2], low[3]);
  left[2] = Pack<T>(high[0], high[1]);
  left[3] = Pack<T>(high[2], high[3]);
}

/// Stores factor[row] * sums in the warp's rows, of which a lane has two.
template <int kHead, class T>
__device__ void StoreRows(const HeadRows& rows, int first, bool aligned, const Sums<kHead>& sums,
                          const float (&factors)[2], T* array) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + 8 * half;
    if (row >= rows.count) continue;
    T* const to = rows.At(array, row);
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      const int column = 8 * n + 2 * (lane % 4);
      const float low = factors[half] * sums[n][2 * half],
                  high = factors[half] * sums[n][2 * half + 1];
      if (column >= rows.size) continue;
      if (aligned) {
        *reinterpret_cast<unsigned*>(to + column) = Pack<T>(low, high);
      } else {
        to[column] = Narrow<T>(low);
        if (column + 1 < rows.size) to[column + 1] = Narrow<T>(high);
      }
    }
  }
}

/// Two tiles that pass by: keys with values, or queries with the gradients of outputs. While one
/// pair is used, the next one arrives.
template <int kHead, class T>
struct Passing {
  static constexpr std::size_t kBytes = std::size_t{4} * kTileRows * kHead * sizeof(T);

  T* memory;

  __device__ SharedTile<kHead, T> First(int turn) const { return {At(turn % 2 * 2)}; }
  __device__ SharedTile<kHead, T> Second(int turn) const { return {At(turn % 2 * 2 + 1)}; }

 private:
  __device__ T* At(int tile) const { return memory + tile * kTileRows * kHead; }
};

/// use(turn) for each turn in [0, turns), when what load(turn) began has arrived. The next one's
/// load begins when all threads have used the one before.
template <class Load, class Use>
__device__ void ForTurns(int turns, const Load& load, const Use& use) {
  __syncthreads();
  if (turns > 0) load(0);
  for (int turn = 0; turn < turns; ++turn) {
    WaitForCopies();
    __syncthreads();
    if (turn + 1 < turns) load(turn + 1);
    use(turn);
  }
}

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
  const float log_scale = scale * kLog2E;
  float largest[2] = {-INFINITY, -INFINITY}, denominators[2] = {0, 0};
  const auto load = [&](int turn) {
    LoadTile<kHead>(place.Keys(), x.qkv, turn * kTileRows, aligned, passing.First(turn));
    LoadTile<kHead>(place.Values(), x.qkv, turn * kTileRows, aligned, passing.Second(turn));
  };
  ForTurns(sight.KeyTiles(begin + kOwnRows), load, [&](int turn) {
    const int key = turn * kTileRows;
    if (sight.causal && key >= own + kOwnOfWarp) return;
    Sums<kTileRows> scores;
    MultiplyRows<kHead, kTileRows>(queries, passing.First(turn), 0, scores);
    if (!sight.SeeAll(own, key, kTileRows)) {
      ForScores(scores, [&](int row, int column, float& score) {
        if (!sight.Sees(own + row, key + column)) score = -INFINITY;
      });
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows past the end see keys like the others; every query sees a key of the first tile.
      float now = largest[half], sum = 0;
#pragma unroll
      for (int n = 0; n < kTileRows / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          now = fmaxf(now, scores[n][i]);
        }
      }
      now = OverLanes(now, Larger(), 4);
      // Most tiles have no larger score than those before.
      const bool same = __all_sync(kAllLanes, now == largest[half] ? 1 : 0) != 0;
      const float least = now == -INFINITY ? 0 : log_scale * now;
      if (!same) {
        const float kept = PowerOfTwo(fmaf(log_scale, largest[half], -least));
        denominators[half] *= kept;
        largest[half] = now;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          outputs[n][2 * half] *= kept;
          outputs[n][2 * half + 1] *= kept;
        }
      }
#pragma unroll
      for (int n = 0; n < kTileRows / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = PowerOfTwo(fmaf(log_scale, scores[n][i], -least));
          sum += scores[n][i];
        }
      }
      denominators[half] += sum;
    }
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
    const float denominator = OverLanes(denominators[half], Plus(), 4);
    const int query = own + lane / 4 + 8 * half;
    factors[half] = 1 / denominator;
    if (lane % 4 == 0 && query < shape.sequence)
      x.log_sum_exp[place.PerQuery() + query] = scale * largest[half] + logf(denominator);
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
          ForScores(scores, [&](int row, int column, float& score) {
            if (!sight.Sees(query + some + column, own + row)) score = 0;
          });
          ForScores(d_scores, [&](int row, int column, float& score) {
            if (!sight.Sees(query + some + column, own + row)) score = 0;
          });
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
