// Matrix products of what lies in the caches.
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
/// row-major. b is read, for nothing, up to PanelSize(columns) in each row; c is not touched past
/// its columns. What is not in the first-level cache should be in the second: pieces of some
/// hundred rows and columns, with the rows of b or of a transposed a side by side.
struct ProductArguments {
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

/// Each sum is made in ascending order of k, fused where the processor can: processors that can
/// agree bit for bit, however a product is cut into pieces.
void Product(const ProductArguments& x);

/// The instructions that Product uses here: "AVX-512", "AVX2", ...
const char* ProductInstructions();

}  // namespace adaptive_train::kernels::cpu
