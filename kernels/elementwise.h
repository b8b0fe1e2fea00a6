// Contracts of the plain element by element operations.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// output[i] = a[i] + b[i]. output may be a or b.
template <class T>
struct AddArguments {
  std::int64_t count = 0;
  const T* a = nullptr;
  const T* b = nullptr;
  T* output = nullptr;
};

/// values[i] *= factor, the factor rounded to T first.
template <class T>
struct ScaleArguments {
  std::int64_t count = 0;
  double factor = 1;
  T* values = nullptr;
};

}  // namespace adaptive_train::kernels
