// Products with their epilogues, and gradients of weights. The matrix units' library adds bias and
// residual. It has the GELU and its derivative for some products; for others they are passes of their
// own.
#include "kernels/matmul.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gelu_functions.h"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// A product without terms: bias and residual alone.
template <class T>
void MultiplyNothing(const Stream& stream, const MatmulArguments<T>& x, T* c) {
  ForElements(stream, x.rows * x.columns, [x, c] __device__(std::int64_t i) {
    float sum = x.bias == nullptr ? 0 : Wide(x.bias[i % x.columns]);
    if (x.residual != nullptr) sum += Wide(x.residual[i]);
    c[i] = Narrow<T>(sum);
  });
}

/// The same product with the GELU or its derivative in one pass, where the library has it: in
/// binary16 its tanh is too coarse.
template <class T>
bool MultiplyWithGelu(Products& products, const MatmulArguments<T>& x, Product product) {
  if (!std::is_same_v<T, BFloat16> || x.gelu != GeluForm::kTanh || x.residual != nullptr ||
      !AreAligned(kGeluAtOnce, x.columns, x.c, x.activated, x.gelu_input))
    return false;
  if (x.gelu_input != nullptr) {
    product.after = AfterProduct::kGeluDerivative;
    product.other = const_cast<T*>(x.gelu_input);  // which is read
  } else {
    product.after = AfterProduct::kGelu;
    product.other = x.c;
    product.d = x.activated;
  }
  if (!products.Has(product)) return false;
  products.Multiply(product);
  return true;
}

template <class T>
Product ProductOf(const MatmulArguments<T>& x) {
  return {.rows = x.rows,
          .columns = x.columns,
          .inner = x.inner,
          .operands = kScalarOf<T>,
          .a = x.a,
          .transpose_a = x.transpose_a,
          .b = x.b,
          .transpose_b = x.transpose_b,
          .bias = x.bias,
          .result = kScalarOf<T>,
          .c = x.residual,
          .d = x.c};
}

/// Each group's sum is made from zero, its runs in turn, and all are added as a tree. With bias and
/// residual in the first group, c may be the residual: they are added when no other sum needs c.
void MultiplyGroups(const Stream& stream, Room& room, const MatmulArguments<float>& x) {
  const std::int64_t count = x.rows * x.columns;
  float* const places = room.For<float>((TreeDepth(x.groups.count) + 1) * count);
  AddTree(
      0, x.groups.count, 0,
      [&](std::int64_t group, std::int64_t place) {
        float* const sums = places + place * count;
        OrderedProduct product{.rows = x.rows,
                               .columns = x.columns,
                               .a = x.a,
                               .a_row = x.transpose_a ? 1 : x.inner,
                               .a_inner = x.transpose_a ? x.rows : 1,
                               .b = x.b,
                               .b_inner = x.transpose_b ? 1 : x.columns,
                               .b_column = x.transpose_b ? x.inner : 1,
                               .c = sums};
        std::int64_t first = 0;
        for (const std::int64_t run : x.groups.runs) {
          product.begin = first + GroupBegin(run, group, x.groups.count);
          product.end = first + GroupBegin(run, group + 1, x.groups.count);
          Multiply(stream, product);
          product.accumulate = true;
          first += run;
        }
        if (group > 0 || (x.bias == nullptr && x.residual == nullptr)) return;
        ForElements(stream, count, [x, sums] __device__(std::int64_t i) {
          if (x.bias != nullptr) sums[i] += x.bias[i % x.columns];
          if (x.residual != nullptr) sums[i] += x.residual[i];
        });
      },
      [&](std::int64_t from, std::int64_t to) {
        AddPlace(stream, count, places + from * count, places + to * count);
      });
  ForElements(stream, count, [x, places] __device__(std::int64_t i) { x.c[i] = places[i]; });
}

}  // namespace

template <class T>
void CudaDevice<T>::Matmul(const MatmulArguments<T>& x) {
  stream_.Begin("Matmul");
  const std::int64_t count = x.rows * x.columns;
  if (count == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (x.groups.count > 0) return MultiplyGroups(stream_, scratch_, x);
  }
  if (x.inner == 0) {
    MultiplyNothing(stream_, x, x.c);
  } else if (MultiplyWithGelu(products_, x, ProductOf(x))) {
    return;
  } else {
    products_.Multiply(ProductOf(x));
  }
  if (x.gelu == GeluForm::kNone) return;
  if (x.gelu_input != nullptr) {
    MultiplyByGeluDerivative(stream_, count, x.gelu, x.gelu_input, x.c, x.c);
  } else {
    ApplyGelu(stream_, count, x.gelu, x.c, x.activated);
  }
}

template <class T>
void CudaDevice<T>::WeightGradient(const WeightGradientArguments<T>& x) {
  stream_.Begin("WeightGradient");
  if (x.rows == 0 || x.out == 0) return;
  if (x.in > 0)
    products_.Multiply(Product{.rows = x.in,
                               .columns = x.out,
                               .inner = x.rows,
                               .operands = kScalarOf<T>,
                               .a = x.input,
                               .transpose_a = true,
                               .b = x.d_output,
                               .c = x.d_weight,
                               .d = x.d_weight});
  if (x.d_bias == nullptr) return;
  AddRows(stream_, partial_, x.rows, x.out, x.out, x.d_output, 1, x.d_bias);
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Matmul, MatmulArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(WeightGradient, WeightGradientArguments)

}  // namespace adaptive_train::kernels::cuda
