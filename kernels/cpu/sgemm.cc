// The call into oneDNN, with its own threads held off.
#include "kernels/cpu/sgemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <stdexcept>
#include <string>

namespace adaptive_train::kernels::cpu {
namespace {

/// oneDNN would start as many threads as OpenMP allows, and its way of cutting a product depends on
/// their number. The device cuts by shape instead, and calls oneDNN with one thread per piece.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int threads_before_ = omp_get_max_threads();
};

/// Without anything to add up, oneDNN is not asked.
void ScaleRows(std::int64_t rows, std::int64_t columns, float beta, float* c,
               std::int64_t c_stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* values = c + row * c_stride;
    for (std::int64_t i = 0; i < columns; ++i) values[i] = beta == 0 ? 0 : beta * values[i];
  }
}

}  // namespace

void Sgemm(std::int64_t rows, std::int64_t columns, std::int64_t inner, float alpha,
           const Operand& a, const Operand& b, float beta, float* c, std::int64_t c_stride) {
  if (rows == 0 || columns == 0) return;
  if (inner == 0) return ScaleRows(rows, columns, beta, c, c_stride);
  const OneThread one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', rows, columns, inner, alpha,
                 a.data, a.stride, b.data, b.stride, beta, c, c_stride);
  if (status != dnnl_success) {
    throw std::runtime_error("oneDNN sgemm of " + std::to_string(rows) + " x " +
                             std::to_string(columns) + " x " + std::to_string(inner) +
                             " failed with status " + std::to_string(status));
  }
}

}  // namespace adaptive_train::kernels::cpu
