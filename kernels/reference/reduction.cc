// Sums over an array as plain loops.
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

template <class T, class Term>
double SumOf(std::int64_t count, const T* values, Term term) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += term(static_cast<double>(values[i]));
  return sum;
}

}  // namespace

template <class T>
double ReferenceDevice<T>::Sum(std::int64_t count, const Accumulator<T>* values) {
  return SumOf(count, values, [](double x) { return x; });
}

template <class T>
double ReferenceDevice<T>::SquaredNorm(std::int64_t count, const Accumulator<T>* values) {
  return SumOf(count, values, [](double x) { return x * x; });
}

template double ReferenceDevice<float>::Sum(std::int64_t, const float*);
template double ReferenceDevice<double>::Sum(std::int64_t, const double*);
template double ReferenceDevice<float>::SquaredNorm(std::int64_t, const float*);
template double ReferenceDevice<double>::SquaredNorm(std::int64_t, const double*);

}  // namespace adaptive_train::kernels::reference
