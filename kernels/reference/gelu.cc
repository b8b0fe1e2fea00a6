// The GELU's plain loops.
#include "kernels/reference/gelu_functions.h"
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Gelu(const GeluArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i) x.output[i] = GeluOf(x.form, x.input[i]);
}

template <class T>
void ReferenceDevice<T>::GeluBackward(const GeluBackwardArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i)
    x.d_input[i] = x.d_output[i] * GeluDerivative(x.form, x.input[i]);
}

template void ReferenceDevice<float>::Gelu(const GeluArguments<float>&);
template void ReferenceDevice<double>::Gelu(const GeluArguments<double>&);
template void ReferenceDevice<float>::GeluBackward(const GeluBackwardArguments<float>&);
template void ReferenceDevice<double>::GeluBackward(const GeluBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
