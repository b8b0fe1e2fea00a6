// Sums over the rows of a matrix, in an order that the shape alone determines. Only .cu files
// include it.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/elements.h"

namespace adaptive_train::kernels::cuda {

inline constexpr int kSumThreads = 32, kSumLanes = 8, kSumRowsPerLane = 16;
inline constexpr int kSumRows = kSumLanes * kSumRowsPerLane;  // of a piece
inline constexpr int kSumWidth = 4;                           // columns of a thread

/// Several sums of kWidth columns each.
template <int kSums, int kWidth>
struct ColumnTerms {
  float of[kSums][kWidth];
};

/// partial[piece, sum, c] = sum over the piece's rows of the terms: lanes sum rows in ascending
/// order, and are added in theirs.
template <int kSums, int kWidth, class Term>
__global__ void __launch_bounds__(kSumThreads* kSumLanes)
    PartialColumnSums(std::int64_t rows, std::int64_t columns, Term term, float* partial) {
  __shared__ float of_lanes[kSumLanes][kSums][kWidth][kSumThreads];
  const int lane = static_cast<int>(threadIdx.y), at = static_cast<int>(threadIdx.x);
  const std::int64_t column = (std::int64_t{blockIdx.x} * kSumThreads + at) * kWidth;
  const std::int64_t piece = blockIdx.y;
  const std::int64_t first = piece * kSumRows + lane * kSumRowsPerLane;
  ColumnTerms<kSums, kWidth> sums = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = first; row < first + kSumRowsPerLane && row < rows; ++row)
      term(row, column, sums);
  }
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) of_lanes[lane][sum][i][at] = sums.of[sum][i];
  }
  __syncthreads();
  if (column >= columns) return;
  // A lane adds one sum of one column of its thread's.
  for (int which = lane; which < kSums * kWidth; which += kSumLanes) {
    const int sum = which / kWidth, i = which % kWidth;
    float all = 0;
    for (int other = 0; other < kSumLanes; ++other) all += of_lanes[other][sum][i][at];
    partial[(piece * kSums + sum) * columns + column + i] = all;
  }
}

/// sums[s][c] += sum over pieces of partial[piece, s, c]: each lane adds its share of the pieces in
/// ascending order, and the lanes are added in theirs.
template <int kSums>
__global__ void __launch_bounds__(kSumThreads* kSumLanes)
    FinishColumnSums(std::int64_t pieces, std::int64_t columns, const float* partial,
                     std::array<float*, kSums> sums) {
  static_assert(kSums <= 2);
  __shared__ float of_lanes[kSumLanes][kSumThreads];
  const int lane = static_cast<int>(threadIdx.y), thread = static_cast<int>(threadIdx.x);
  const std::int64_t at = std::int64_t{blockIdx.x} * kSumThreads + thread;
  float sum = 0;
  if (at < kSums * columns) {
#pragma unroll 8
    for (std::int64_t piece = lane; piece < pieces; piece += kSumLanes)
      sum += partial[piece * kSums * columns + at];
  }
  of_lanes[lane][thread] = sum;
  __syncthreads();
  if (lane != 0 || at >= kSums * columns) return;
  for (int other = 1; other < kSumLanes; ++other) sum += of_lanes[other][thread];
  float* const whole = at < columns ? sums.front() : sums.back();
  whole[at % columns] += sum;
}

/// sums[s][c] += sum over rows of the s-th terms, pieces in an order that their number determines.
/// term(row, column, terms) adds those of kWidth columns from `column` on; columns are a multiple
/// of it.
template <int kSums, int kWidth, class Term>
void AddColumnSums(const Stream& stream, Room& room, std::int64_t rows, std::int64_t columns,
                   const Term& term, const std::array<float*, kSums>& sums) {
  if (rows == 0 || columns == 0) return;
  constexpr std::int64_t kMostPieces = 65535;  // a grid's second dimension
  for (std::int64_t row = 0; row < rows; row += kMostPieces * kSumRows) {
    const std::int64_t some = std::min(rows - row, kMostPieces * kSumRows);
    const std::int64_t pieces = Pieces(some, kSumRows);
    float* partial = room.For<float>(pieces * kSums * columns);
    const auto from = [term, row] __device__(std::int64_t r, std::int64_t c,
                                             ColumnTerms<kSums, kWidth> & terms) {
      term(row + r, c, terms);
    };
    Launch(stream,
           dim3(static_cast<unsigned>(Pieces(columns, kSumThreads * kWidth)),
                static_cast<unsigned>(pieces)),
           dim3(kSumThreads, kSumLanes), 0, PartialColumnSums<kSums, kWidth, decltype(from)>, some,
           columns, from, partial);
    Launch(stream, static_cast<unsigned>(Pieces(kSums * columns, kSumThreads)),
           dim3(kSumThreads, kSumLanes), 0, FinishColumnSums<kSums>, pieces, columns, partial,
           sums);
  }
}

/// AddRows for rows that may be read kWidth elements at a time.
template <int kWidth, class T>
void AddRowsAt(const Stream& stream, Room& room, std::int64_t rows, std::int64_t columns,
               std::int64_t stride, const T* matrix, float factor, float* sums) {
  AddColumnSums<1, kWidth>(
      stream, room, rows, columns,
      [matrix, stride, factor] __device__(std::int64_t row, std::int64_t column,
                                          ColumnTerms<1, kWidth> & terms) {
        const Neighbours<T, kWidth> values = Load<kWidth>(matrix + row * stride + column);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) terms.of[0][i] += factor * Wide(values.at[i]);
      },
      {sums});
}

/// sums[c] += factor * sum over rows of matrix[r, c], whose rows begin `stride` elements apart.
template <class T>
void AddRows(const Stream& stream, Room& room, std::int64_t rows, std::int64_t columns,
             std::int64_t stride, const T* matrix, float factor, float* sums) {
  AreAligned(kSumWidth, columns | stride, matrix)
      ? AddRowsAt<kSumWidth>(stream, room, rows, columns, stride, matrix, factor, sums)
      : AddRowsAt<1>(stream, room, rows, columns, stride, matrix, factor, sums);
}

}  // namespace adaptive_train::kernels::cuda
