// Rotary position embedding as plain loops.
#include "kernels/rope.h"

#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Rope(const RopeArguments<T>& x) {
  const std::int64_t half = x.head_size / 2;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t head = 0; head < x.rotated_heads; ++head) {
      T* values = x.values + (row * x.heads + head) * x.head_size;
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(row % x.sequence) * RopeRate(x.base, x.scaling, x.head_size, i);
        const T cosine = static_cast<T>(std::cos(angle));
        const T sine = static_cast<T>(x.inverse ? -std::sin(angle) : std::sin(angle));
        const T low = values[i], high = values[i + half];
        values[i] = low * cosine - high * sine;
        values[i + half] = high * cosine + low * sine;
      }
    }
  }
}

template void ReferenceDevice<float>::Rope(const RopeArguments<float>&);
template void ReferenceDevice<double>::Rope(const RopeArguments<double>&);

}  // namespace adaptive_train::kernels::reference
