// SwiGLU as plain loops.
#include "kernels/swiglu.h"

#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Swiglu(const SwigluArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* gate = x.input + row * 2 * x.columns;
    const T* up = gate + x.columns;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      x.output[row * x.columns + i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
  }
}

// With s = 1 / (1 + exp(-x)): silu(x) = x s, silu'(x) = s + x s (1 - s).
template <class T>
void ReferenceDevice<T>::SwigluBackward(const SwigluBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::int64_t first = row * 2 * x.columns;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const T gate = x.input[first + i], up = x.input[first + x.columns + i];
      const T d = x.d_output[row * x.columns + i], s = 1 / (1 + std::exp(-gate));
      x.d_input[first + i] = d * up * (s + gate * s * (1 - s));
      x.d_input[first + x.columns + i] = d * gate * s;
    }
  }
}

template void ReferenceDevice<float>::Swiglu(const SwigluArguments<float>&);
template void ReferenceDevice<double>::Swiglu(const SwigluArguments<double>&);
template void ReferenceDevice<float>::SwigluBackward(const SwigluBackwardArguments<float>&);
template void ReferenceDevice<double>::SwigluBackward(const SwigluBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
