// Matrix products by libraries that do nothing else: what a product takes at least on this processor.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace adaptive_train {

/// c[rows, columns] = op(a)[rows, inner] op(b)[inner, columns], row by row. A transposed operand is
/// stored the other way round.
struct ProductShape {
  std::int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false;
  auto operator<=>(const ProductShape&) const = default;
  double Flops() const {
    return 2 * static_cast<double>(rows * columns) * static_cast<double>(inner);
  }
};

/// oneDNN, and OpenBLAS and BLIS where they are installed, on one thread each. Each shape is measured
/// once: the best of several calls. One thread.
class BareProducts {
 public:
  struct Time {
    double seconds = 0;
    std::string library;  // the fastest
  };

  BareProducts();

  /// All that were found, for people.
  std::string Libraries() const;
  /// On float32 arrays in float32.
  const Time& Float(const ProductShape& shape);
  /// On bfloat16 arrays with float32 sums, where the processor multiplies such numbers; operands are
  /// laid out as oneDNN likes them best, whatever `shape` says. Nothing where it does not.
  const Time* BFloat16(const ProductShape& shape);

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int rows, int columns,
                         int inner, float alpha, const float* a, int stride_a, const float* b,
                         int stride_b, float beta, float* c, int stride_c);
  struct Library {
    std::string name;
    Sgemm sgemm = nullptr;
  };

  void Open(const std::string& name, const char* file);

  std::vector<Library> libraries_;
  std::map<ProductShape, Time> float_, bfloat16_;
};

}  // namespace adaptive_train
