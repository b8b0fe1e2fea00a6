// Softmax and cross-entropy as plain loops.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::CrossEntropy(const CrossEntropyArguments<T>& x) {
  const T scale = static_cast<T>(x.gradient_scale);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* logits = x.logits + row * x.classes;
    T largest = logits[0], sum = 0;
    for (std::int64_t i = 1; i < x.classes; ++i) largest = std::max(largest, logits[i]);
    for (std::int64_t i = 0; i < x.classes; ++i) sum += std::exp(logits[i] - largest);
    const T log_sum_exp = largest + std::log(sum);
    x.losses[row] = log_sum_exp - logits[x.targets[row]];
    if (x.d_logits == nullptr) continue;
    T* d_logits = x.d_logits + row * x.classes;
    for (std::int64_t i = 0; i < x.classes; ++i)
      d_logits[i] = scale * std::exp(logits[i] - log_sum_exp);
    d_logits[x.targets[row]] -= scale;
  }
}

template void ReferenceDevice<float>::CrossEntropy(const CrossEntropyArguments<float>&);
template void ReferenceDevice<double>::CrossEntropy(const CrossEntropyArguments<double>&);

}  // namespace adaptive_train::kernels::reference
