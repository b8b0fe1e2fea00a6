#include "kernels/cuda/grouped_product.h"

#include "kernels/cuda/elements.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr int kSide = 32;  // of a tile of c, and its depth
constexpr int kRowsPerThread = 4;
constexpr int kTileThreads = kSide * kSide / kRowsPerThread;
constexpr int kLanes = kTileThreads / kSide;

__global__ void __launch_bounds__(kTileThreads) OrderedProductKernel(OrderedProduct x) {
  __shared__ float a[kSide][kSide + 1], b[kSide][kSide + 1];
  const int column = static_cast<int>(threadIdx.x) % kSide;
  const int lane = static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kSide;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kSide;
  const std::int64_t at_column = first_column + column;
  float sums[kRowsPerThread] = {};
#pragma unroll
  for (int j = 0; j < kRowsPerThread; ++j) {
    const std::int64_t row = first_row + lane + j * kLanes;
    if (x.accumulate && row < x.rows && at_column < x.columns)
      sums[j] = x.c[row * x.columns + at_column];
  }
  for (std::int64_t k = x.begin; k < x.end; k += kSide) {
#pragma unroll
    for (int j = 0; j < kRowsPerThread; ++j) {
      const int i = lane + j * kLanes;
      const std::int64_t row = first_row + i, a_k = k + column, b_k = k + i;
      a[i][column] = row < x.rows && a_k < x.end ? x.a[row * x.a_row + a_k * x.a_inner] : 0;
      b[i][column] =
          at_column < x.columns && b_k < x.end ? x.b[b_k * x.b_inner + at_column * x.b_column] : 0;
    }
    __syncthreads();
    const int depth = static_cast<int>(x.end - k < kSide ? x.end - k : kSide);
    for (int inner = 0; inner < depth; ++inner) {
#pragma unroll
      for (int j = 0; j < kRowsPerThread; ++j)
        sums[j] = fmaf(a[lane + j * kLanes][inner], b[inner][column], sums[j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kRowsPerThread; ++j) {
    const std::int64_t row = first_row + lane + j * kLanes;
    if (row < x.rows && at_column < x.columns) x.c[row * x.columns + at_column] = sums[j];
  }
}

}  // namespace

void Multiply(const Stream& stream, const OrderedProduct& x) {
  if (x.rows == 0 || x.columns == 0) return;
  constexpr std::int64_t kMostRows = std::int64_t{65535} * kSide;  // a grid's second dimension
  for (std::int64_t row = 0; row < x.rows; row += kMostRows) {
    OrderedProduct some = x;
    some.rows = std::min(kMostRows, x.rows - row);
    some.a += row * x.a_row;
    some.c += row * x.columns;
    Launch(stream,
           dim3(static_cast<unsigned>(Pieces(x.columns, kSide)),
                static_cast<unsigned>(Pieces(some.rows, kSide))),
           kTileThreads, 0, OrderedProductKernel, some);
  }
}

void AddPlace(const Stream& stream, std::int64_t count, const float* from, float* to) {
  ForElements(stream, count, [from, to] __device__(std::int64_t i) { to[i] += from[i]; });
}

}  // namespace adaptive_train::kernels::cuda
