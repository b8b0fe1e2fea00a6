// GELU as plain loops.
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Gelu(const GeluArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i) {
    const T value = x.input[i];
    const T inner = static_cast<T>(kGeluRootTwoOverPi) *
                    (value + static_cast<T>(kGeluCubic) * value * value * value);
    x.output[i] = value / 2 * (1 + std::tanh(inner));
  }
}

template <class T>
void ReferenceDevice<T>::GeluBackward(const GeluBackwardArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i) {
    const T value = x.input[i];
    const T cubic = static_cast<T>(kGeluCubic);
    const T tanh =
        std::tanh(static_cast<T>(kGeluRootTwoOverPi) * (value + cubic * value * value * value));
    const T d_inner = static_cast<T>(kGeluRootTwoOverPi) * (1 + 3 * cubic * value * value);
    x.d_input[i] = x.d_output[i] * ((1 + tanh) / 2 + value / 2 * (1 - tanh * tanh) * d_inner);
  }
}

template void ReferenceDevice<float>::Gelu(const GeluArguments<float>&);
template void ReferenceDevice<double>::Gelu(const GeluArguments<double>&);
template void ReferenceDevice<float>::GeluBackward(const GeluBackwardArguments<float>&);
template void ReferenceDevice<double>::GeluBackward(const GeluBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
