// Dropout as plain loops, a random number at a time.
#include "kernels/dropout.h"

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Dropout(const DropoutArguments<T>& x) {
  for (std::int64_t at = x.begin; at < x.end; ++at) {
    const RandomPlace place{.step = x.step,
                            .sample = x.first_sample + static_cast<std::uint32_t>(at / x.elements),
                            .layer = x.layer,
                            .element = static_cast<std::uint64_t>(at % x.elements)};
    const bool kept = x.random.Uniform(place) >= x.probability;
    const std::int64_t i = at - x.begin;
    const T value = kept ? x.input[i] / static_cast<T>(1 - x.probability) : 0;
    x.output[i] = x.residual == nullptr ? value : x.residual[i] + value;
  }
}

template void ReferenceDevice<float>::Dropout(const DropoutArguments<float>&);
template void ReferenceDevice<double>::Dropout(const DropoutArguments<double>&);

}  // namespace adaptive_train::kernels::reference
