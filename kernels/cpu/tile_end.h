// The epilogue of a product's tile, and sums down the columns of a matrix.
#pragma once

#include <cstdint>

#include "kernels/gelu.h"

namespace adaptive_train::kernels::cpu {

/// The epilogue of a product (kernels/matmul.h) for one tile of float sums. The other pointers
/// point to the tile's first elements.
template <class T>
struct TileEnd {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const float* tile = nullptr;
  std::int64_t tile_stride = 0;
  std::int64_t stride = 0;  // of the matrices
  const T* bias = nullptr;
  const T* residual = nullptr;
  T* c = nullptr;
  GeluForm gelu = GeluForm::kNone;
  T* activated = nullptr;
  const T* gelu_input = nullptr;
};

template <class T>
void FinishTile(const TileEnd<T>& x);

/// sums[column] += the column's sum over the rows, in ascending order.
template <class T>
struct ColumnSums {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* values = nullptr;
  std::int64_t stride = 0;
  float* sums = nullptr;
};

template <class T>
void AddColumns(const ColumnSums<T>& x);

}  // namespace adaptive_train::kernels::cpu
