// Matrix products and gradients of weights as plain loops.
#include <vector>

#include "kernels/reference/gelu_functions.h"
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

template <class T>
T OfGroup(const MatmulArguments<T>& x, const InnerGroups& groups, std::int64_t group,
          std::int64_t row, std::int64_t column) {
  T sum = 0;
  std::int64_t first = 0;
  for (const std::int64_t run : groups.runs) {
    const std::int64_t end = first + GroupBegin(run, group + 1, groups.count);
    for (std::int64_t k = first + GroupBegin(run, group, groups.count); k < end; ++k) {
      const T a = x.transpose_a ? x.a[k * x.rows + row] : x.a[row * x.inner + k];
      const T b = x.transpose_b ? x.b[column * x.inner + k] : x.b[k * x.columns + column];
      sum += a * b;
    }
    first += run;
  }
  if (group == 0 && x.bias != nullptr) sum += x.bias[column];
  if (group == 0 && x.residual != nullptr) sum += x.residual[row * x.columns + column];
  return sum;
}

}  // namespace

template <class T>
void ReferenceDevice<T>::Matmul(const MatmulArguments<T>& x) {
  const InnerGroups groups = x.groups.count > 0 ? x.groups : InnerGroups{1, {&x.inner, 1}};
  std::vector<T> places(static_cast<std::size_t>(TreeDepth(groups.count) + 1));
  const auto place = [&](std::int64_t i) -> T& { return places[static_cast<std::size_t>(i)]; };
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      AddTree(
          0, groups.count, 0,
          [&](std::int64_t group, std::int64_t at) {
            place(at) = OfGroup(x, groups, group, row, column);
          },
          [&](std::int64_t from, std::int64_t to) { place(to) += place(from); });
      T sum = place(0);
      const std::int64_t at = row * x.columns + column;
      if (x.gelu_input != nullptr) sum *= GeluDerivative(x.gelu, x.gelu_input[at]);
      if (x.activated != nullptr) x.activated[at] = GeluOf(x.gelu, sum);
      x.c[at] = sum;
    }
  }
}

template <class T>
void ReferenceDevice<T>::WeightGradient(const WeightGradientArguments<T>& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* d_output = x.d_output + row * x.out;
    for (std::int64_t i = 0; i < x.in; ++i) {
      const T input = x.input[row * x.in + i];
      for (std::int64_t o = 0; o < x.out; ++o) x.d_weight[i * x.out + o] += input * d_output[o];
    }
    if (x.d_bias == nullptr) continue;
    for (std::int64_t o = 0; o < x.out; ++o) x.d_bias[o] += d_output[o];
  }
}

template void ReferenceDevice<float>::Matmul(const MatmulArguments<float>&);
template void ReferenceDevice<double>::Matmul(const MatmulArguments<double>&);
template void ReferenceDevice<float>::WeightGradient(const WeightGradientArguments<float>&);
template void ReferenceDevice<double>::WeightGradient(const WeightGradientArguments<double>&);

}  // namespace adaptive_train::kernels::reference
