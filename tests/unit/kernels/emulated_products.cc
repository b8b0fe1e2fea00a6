// Stands for cuBLASLt on emulated GPUs: plain loops.
#include <vector>

#include "kernels/cuda/gelu_functions.h"
#include "kernels/cuda/products.h"

namespace adaptive_train::kernels::cuda {
namespace {

float At(Scalar scalar, const void* array, std::int64_t i) {
  switch (scalar) {
    case Scalar::kBFloat16:
      return ToFloat(static_cast<const BFloat16*>(array)[i]);
    case Scalar::kFloat16:
      return ToFloat(static_cast<const Float16*>(array)[i]);
    case Scalar::kFloat32:
      break;
  }
  return static_cast<const float*>(array)[i];
}

void Put(Scalar scalar, void* array, std::int64_t i, float value) {
  switch (scalar) {
    case Scalar::kBFloat16:
      static_cast<BFloat16*>(array)[i] = ToBFloat16(value);
      return;
    case Scalar::kFloat16:
      static_cast<Float16*>(array)[i] = ToFloat16(value);
      return;
    case Scalar::kFloat32:
      static_cast<float*>(array)[i] = value;
  }
}

/// op(matrix)[rows, columns] in float32.
std::vector<float> Widened(Scalar scalar, const void* matrix, bool transposed, std::int64_t rows,
                           std::int64_t columns, std::int64_t stride) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      values[static_cast<std::size_t>(row * columns + column)] =
          At(scalar, matrix, transposed ? column * stride + row : row * stride + column);
  }
  return values;
}

}  // namespace

struct Products::Library {};

Products::Products(const Stream&) {}
Products::~Products() = default;

void Products::Multiply(const Product& x) {
  const std::vector<float> a = Widened(x.operands, x.a, x.transpose_a, x.rows, x.inner,
                                       x.AStride()),
                           b = Widened(x.operands, x.b, x.transpose_b, x.inner, x.columns,
                                       x.transpose_b ? x.inner : x.columns);
  std::vector<float> sums(static_cast<std::size_t>(x.columns));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::int64_t k = 0; k < x.inner; ++k) {
      const float of_a = a[static_cast<std::size_t>(row * x.inner + k)];
      const float* of_b = b.data() + k * x.columns;
      for (std::size_t column = 0; column < sums.size(); ++column)
        sums[column] += of_a * of_b[column];
    }
    for (std::int64_t column = 0; column < x.columns; ++column) {
      const std::int64_t i = row * x.DStride() + column;
      float value = x.alpha * sums[static_cast<std::size_t>(column)];
      if (x.c != nullptr) value += At(x.result, x.c, i);
      if (x.bias != nullptr) value += At(x.operands, x.bias, column);
      const std::int64_t dense = row * x.columns + column;
      if (x.after == AfterProduct::kGelu) {
        Put(x.operands, x.other, dense, value);
        value = GeluOf(GeluForm::kTanh, value);
      } else if (x.after == AfterProduct::kGeluDerivative) {
        value *= GeluDerivative(GeluForm::kTanh, At(x.operands, x.other, dense));
      }
      Put(x.result, x.d, i, value);
    }
  }
}

bool Products::Has(const Product&) { return true; }

std::string Products::Description() const { return "plain loops"; }

}  // namespace adaptive_train::kernels::cuda
