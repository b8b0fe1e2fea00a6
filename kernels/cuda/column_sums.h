// Sums over the rows of a matrix, in an order that the shape alone determines. Only .cu files
// include it.
#pragma once

#include <cstdint>

#include "kernels/cuda/elements.h"

namespace adaptive_train::kernels::cuda {

inline constexpr int kSumColumns = 32, kSumLanes = 8, kSumRowsPerLane = 32;
inline constexpr int kSumRows = kSumLanes * kSumRowsPerLane;  // of a piece

/// partial[piece, c] = sum over the piece's rows of term(r, c): lanes sum rows in ascending order,
/// and are added in theirs.
template <class Term>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    PartialColumnSums(std::int64_t rows, std::int64_t columns, Term term, float* partial) {
  __shared__ float of_lanes[kSumLanes][kSumColumns];
  const int lane = static_cast<int>(threadIdx.y), at = static_cast<int>(threadIdx.x);
  const std::int64_t column = std::int64_t{blockIdx.x} * kSumColumns + at;
  const std::int64_t piece = blockIdx.y;
  const std::int64_t first = piece * kSumRows + lane * kSumRowsPerLane;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t row = first; row < first + kSumRowsPerLane && row < rows; ++row)
      sum += term(row, column);
  }
  of_lanes[lane][at] = sum;
  __syncthreads();
  if (lane != 0 || column >= columns) return;
  for (int other = 1; other < kSumLanes; ++other) sum += of_lanes[other][at];
  partial[piece * columns + column] = sum;
}

/// sums[c] += sum over rows of term(r, c), pieces in ascending order.
template <class Term>
void AddColumnSums(const Stream& stream, Room& room, std::int64_t rows, std::int64_t columns,
                   const Term& term, float* sums) {
  if (rows == 0 || columns == 0) return;
  constexpr std::int64_t kMostPieces = 65535;  // a grid's second dimension
  for (std::int64_t row = 0; row < rows; row += kMostPieces * kSumRows) {
    const std::int64_t some = std::min(rows - row, kMostPieces * kSumRows);
    const std::int64_t pieces = Pieces(some, kSumRows);
    float* partial = room.For<float>(pieces * columns);
    const auto from = [term, row] __device__(std::int64_t r, std::int64_t c) {
      return term(row + r, c);
    };
    Launch(stream,
           dim3(static_cast<unsigned>(Pieces(columns, kSumColumns)), static_cast<unsigned>(pieces)),
           dim3(kSumColumns, kSumLanes), 0, PartialColumnSums<decltype(from)>, some, columns, from,
           partial);
    ForElements(stream, columns, [partial, pieces, columns, sums] __device__(std::int64_t c) {
      float sum = 0;
      for (std::int64_t piece = 0; piece < pieces; ++piece) sum += partial[piece * columns + c];
      sums[c] += sum;
    });
  }
}

}  // namespace adaptive_train::kernels::cuda
