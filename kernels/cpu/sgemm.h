// oneDNN's single-precision product on the calling thread alone.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// An operand as it lies in memory, row-major; `stride` is the distance of its rows in elements.
struct Operand {
  const float* data;
  std::int64_t stride;
  bool transposed = false;
};

/// c[rows, columns] = alpha op(a)[rows, inner] op(b)[inner, columns] + beta c, with c's rows
/// c_stride apart. With beta = 0, c is not read. Throws std::runtime_error if oneDNN refuses.
void Sgemm(std::int64_t rows, std::int64_t columns, std::int64_t inner, float alpha,
           const Operand& a, const Operand& b, float beta, float* c, std::int64_t c_stride);

}  // namespace adaptive_train::kernels::cpu
