// Matrix products on a GPU's matrix units.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/make_cuda_device.h"
#include "kernels/cuda/stream.h"

namespace adaptive_train::kernels::cuda {

/// What becomes of a product with its bias, before it is stored; in GELU's tanh form. Only without
/// c, and a derivative without bias.
enum class AfterProduct {
  kNothing,
  kGelu,            // `other` receives it, and d its GELU
  kGeluDerivative,  // d is it times the GELU's derivative at `other`
};

/// d[rows, columns] = alpha op(a)[rows, inner] op(b)[inner, columns] + bias[columns] +
///                    c[rows, columns]
/// All are row-major, and none of rows, columns and inner is 0. A transposed operand is stored the
/// other way round. Strides are from one stored row to the next, in elements; 0: rows are dense.
/// Sums are in float32, and so are products of float32: no tf32. In 16 bits a sum may be rounded
/// before bias and c are added, and then again.
struct Product {
  std::int64_t rows = 0, columns = 0, inner = 0;
  Scalar operands = Scalar::kFloat32;  // of a, b and bias
  const void* a = nullptr;
  bool transpose_a = false;
  std::int64_t a_stride = 0;
  const void* b = nullptr;
  bool transpose_b = false;
  float alpha = 1;
  const void* bias = nullptr;        // nullptr: none; only where result == operands
  Scalar result = Scalar::kFloat32;  // of c and d: operands or float32
  const void* c = nullptr;           // nullptr: none; may be d
  AfterProduct after = AfterProduct::kNothing;
  void* other = nullptr;  // [rows, columns], dense, of operands' type
  void* d = nullptr;
  std::int64_t d_stride = 0;  // and c's

  std::int64_t AStride() const { return a_stride != 0 ? a_stride : transpose_a ? rows : inner; }
  std::int64_t DStride() const { return d_stride != 0 ? d_stride : columns; }
};

/// Products on a stream. A shape keeps the algorithm that it was given first, so that its bits
/// repeat. Throws CudaFailure.
class Products {
 public:
  explicit Products(const Stream& stream);
  ~Products();

  void Multiply(const Product& x);
  /// Whether the library can do this one, with what comes after it.
  bool Has(const Product& x);
  /// The library that computes them, for people.
  std::string Description() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace adaptive_train::kernels::cuda
