// Element by element operations as plain loops.
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Add(const AddArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i) x.output[i] = x.a[i] + x.b[i];
}

template <class T>
void ReferenceDevice<T>::Scale(const ScaleArguments<T>& x) {
  for (std::int64_t i = 0; i < x.count; ++i) x.values[i] *= static_cast<T>(x.factor);
}

template void ReferenceDevice<float>::Add(const AddArguments<float>&);
template void ReferenceDevice<double>::Add(const AddArguments<double>&);
template void ReferenceDevice<float>::Scale(const ScaleArguments<float>&);
template void ReferenceDevice<double>::Scale(const ScaleArguments<double>&);

}  // namespace adaptive_train::kernels::reference
