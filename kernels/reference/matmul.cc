// Matrix product and bias gradient as plain loops.
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Matmul(const MatmulArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      T sum = 0;
      for (std::int64_t k = 0; k < x.inner; ++k) {
        const T a = x.transpose_a ? x.a[k * x.rows + row] : x.a[row * x.inner + k];
        const T b = x.transpose_b ? x.b[column * x.inner + k] : x.b[k * x.columns + column];
        sum += a * b;
      }
      if (x.bias != nullptr) sum += x.bias[column];
      T& c = x.c[row * x.columns + column];
      c = x.accumulate ? c + sum : sum;
    }
  }
}

template <class T>
void ReferenceDevice<T>::BiasBackward(const BiasBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      x.d_bias[column] += x.d_output[row * x.columns + column];
    }
  }
}

template void ReferenceDevice<float>::Matmul(const MatmulArguments<float>&);
template void ReferenceDevice<double>::Matmul(const MatmulArguments<double>&);
template void ReferenceDevice<float>::BiasBackward(const BiasBackwardArguments<float>&);
template void ReferenceDevice<double>::BiasBackward(const BiasBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
