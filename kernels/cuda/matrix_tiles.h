// Tiles of rows of 16-bit numbers that pass by in shared memory, and a warp's products with them on
// the matrix units. Only .cu files include it.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/attention_places.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/matrix_units.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {

inline constexpr int kBlock = 128;  // threads
inline constexpr int kOwnOfWarp = 16, kOwnRows = kOwnOfWarp * (kBlock / kWarp);
inline constexpr int kTileRows = 64;  // of the others
inline constexpr int kPart = 8;       // numbers of 16 bits that are copied at once

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
inline constexpr int kLoadedAtOnce = 4;

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

}  // namespace adaptive_train::kernels::cuda
