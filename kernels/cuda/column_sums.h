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

/// partial[piece, c] = factor * sum over the piece's rows of matrix[r, c]: lanes sum rows in
/// ascending order, and are added in theirs.
template <int kWidth, class T>
__global__ void __launch_bounds__(kSumThreads* kSumLanes)
    PartialColumnSums(std::int64_t rows, std::int64_t columns, std::int64_t stride, const T* matrix,
                      float factor, float* partial) {
  __shared__ float of_lanes[kSumLanes][kWidth][kSumThreads];
  const int lane = static_cast<int>(threadIdx.y), at = static_cast<int>(threadIdx.x);
  const std::int64_t column = (std::int64_t{blockIdx.x} * kSumThreads + at) * kWidth;
  const std::int64_t piece = blockIdx.y;
  const std::int64_t first = piece * kSumRows + lane * kSumRowsPerLane;
  float sums[kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = first; row < first + kSumRowsPerLane && row < rows; ++row) {
      const Neighbours<T, kWidth> values = Load<kWidth>(matrix + row * stride + column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += factor * Wide(values.at[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) of_lanes[lane][i][at] = sums[i];
  __syncthreads();
  if (column >= columns || lane >= kWidth) return;
  // A lane adds the sums of one column of its thread's.
  float all = 0;
  for (int other = 0; other < kSumLanes; ++other) all += of_lanes[other][lane][at];
  partial[piece * columns + column + lane] = all;
}

/// sums[s][c] += sum over pieces of partial[piece, s, c]: each lane adds its share of the pieces in
/// ascending order, and the lanes are added in theirs.
template <int kSums>
__global__ void __launch_bounds__(kSumThreads* kSumLanes)
    FinishColumnSumsKernel(std::int64_t pieces, std::int64_t columns, const float* partial,
                           std::array<float*, 2> sums) {
  static_assert(kSums == 1 || kSums == 2);
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
  float* const whole = at < columns ? sums[0] : sums[1];
  whole[at % columns] += sum;
}

/// Adds [pieces, kSums, columns] partial sums to the first kSums of these sums, of `columns` each.
template <int kSums>
void FinishColumnSums(const Stream& stream, std::int64_t pieces, std::int64_t columns,
                      const float* partial, const std::array<float*, 2>& sums) {
  Launch(stream, static_cast<unsigned>(Pieces(kSums * columns, kSumThreads)),
         dim3(kSumThreads, kSumLanes), 0, FinishColumnSumsKernel<kSums>, pieces, columns, partial,
         sums);
}

/// sums[c] += factor * sum over rows of matrix[r, c], whose rows begin `stride` elements apart;
/// pieces in an order that their number determines.
template <class T>
void AddRows(const Stream& stream, Room& room, std::int64_t rows, std::int64_t columns,
             std::int64_t stride, const T* matrix, float factor, float* sums) {
  if (rows == 0 || columns == 0) return;
  const bool at_once = AreAligned(kSumWidth, columns | stride, matrix);
  const auto kernel = at_once ? PartialColumnSums<kSumWidth, T> : PartialColumnSums<1, T>;
  const std::int64_t width = kSumThreads * (at_once ? kSumWidth : 1);
  constexpr std::int64_t kMostPieces = 65535;  // a grid's second dimension
  for (std::int64_t row = 0; row < rows; row += kMostPieces * kSumRows) {
    const std::int64_t some = std::min(rows - row, kMostPieces * kSumRows);
    const std::int64_t pieces = Pieces(some, kSumRows);
    float* const partial = room.For<float>(pieces * columns);
    Launch(stream,
           dim3(static_cast<unsigned>(Pieces(columns, width)), static_cast<unsigned>(pieces)),
           dim3(kSumThreads, kSumLanes), 0, kernel, some, columns, stride, matrix + row * stride,
           factor, partial);
    FinishColumnSums<1>(stream, pieces, columns, partial, {sums, nullptr});
  }
}

}  // namespace adaptive_train::kernels::cuda
