// Products of panels that fit the cache, without packing: attention's inner products.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// Panels' rows are this many floats or a multiple: whole vectors on every processor.
inline constexpr std::int64_t kPanelMultiple = 16;

inline constexpr std::int64_t PanelSize(std::int64_t count) {
  return (count + kPanelMultiple - 1) / kPanelMultiple * kPanelMultiple;
}

/// c[rows, columns] = a[rows, inner] b[inner, columns], added to c with `accumulate`. a's element
/// (i, k) lies at a[i * a_row + k * a_inner], so a may be a transposed matrix; b and c are
/// row-major, and columns is a multiple of kPanelMultiple.
struct SmallProductArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_inner = 1;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool accumulate = false;
};

void SmallProduct(const SmallProductArguments& x);

}  // namespace adaptive_train::kernels::cpu
