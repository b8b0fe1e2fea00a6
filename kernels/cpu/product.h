// Matrix products of operands that are in the caches.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// Panel rows are a multiple of this many floats: whole vectors on every processor.
inline constexpr std::int64_t kPanelMultiple = 16;

inline constexpr std::int64_t PanelSize(std::int64_t count) {
  return (count + kPanelMultiple - 1) / kPanelMultiple * kPanelMultiple;
}

/// c[rows, columns] = a[rows, inner] b[inner, columns]; `accumulate` adds to c. Element (i, k) of a
/// is at a[i * a_row + k * a_inner], so a may be transposed; b and c are row-major. Each row of b
/// is read in whole vectors, at most up to PanelSize(columns), though the surplus is unused; c is
/// not touched past its columns. Operands should be in the second-level cache if not in the first:
/// pieces of some hundred rows and columns. Rows of b, or of a transposed a, should be contiguous.
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

/// Each sum is accumulated in ascending order of k, with fused multiply-add if available.
/// Processors that have it agree bit for bit, however a product is cut into pieces.
void Product(const ProductArguments& x);

/// The columns of a block of sums. Where rows of b are so long, and no longer, a product is fastest:
/// a piece of b then takes a share of each set of the first-level cache.
std::int64_t ProductBlockColumns();

/// The instruction set that Product uses here: "AVX-512", "AVX2", ...
const char* ProductInstructions();

}  // namespace adaptive_train::kernels::cpu
