// Matrix products, strip by strip; what follows a product is done to each strip while it is in the
// cache.
#include "kernels/matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tile_end.h"

namespace adaptive_train::kernels::cpu {
namespace {

static_assert(kColumnsPerPiece >= kPanelColumns, "sums down a panel's columns are one piece");

/// A product's first operand, [rows, inner], or transposed [inner, rows], as float32 row by row: in
/// its own place, or in scratch memory.
template <class T>
struct FirstOperand {
  const T* values;
  std::int64_t rows;
  std::int64_t inner;
  bool transposed = false;

  bool InPlace() const { return std::is_same_v<T, float> && !transposed; }
  /// From row to row. What is transposed has a cache line between rows: `inner` is then the rows of
  /// a batch, often a multiple of a page, and rows that far apart are in each other's way.
  std::int64_t Stride() const { return transposed ? inner + 16 : inner; }
  std::int64_t ScratchSize() const { return InPlace() ? 0 : rows * Stride(); }

  const float* InFloat(ThreadPool& pool, float* scratch) const {
    if constexpr (std::is_same_v<T, float>) {
      if (!transposed) return values;
    }
    if (transposed) {
      Transpose(pool, scratch);
    } else {
      pool.ForPieces(rows * inner, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
        Widen<T>({.rows = 1,
                  .columns = end - begin,
                  .matrix = values + begin,
                  .panel = scratch + begin});
      });
    }
    return scratch;
  }

 private:
  void Transpose(ThreadPool& pool, float* to) const {
    constexpr std::int64_t kRows = 64, kInner = 256;
    const std::int64_t down = Pieces(rows, kRows);
    pool.For(down * Pieces(inner, kInner), [&](std::int64_t index, int) {
      const std::int64_t row = index % down * kRows, k = index / down * kInner;
      WidenTransposed<T>({.rows = std::min(kInner, inner - k),
                          .columns = std::min(kRows, rows - row),
                          .matrix = values + k * rows + row,
                          .matrix_stride = rows,
                          .panel = to + row * Stride() + k,
                          .panel_stride = Stride()});
    });
  }
};

/// Of a strip; b and where the sums go are still to be said.
ProductArguments ProductOf(const Strip& strip, const float* a, std::int64_t a_row) {
  ProductArguments product;
  product.rows = strip.rows;
  product.columns = strip.columns;
  product.a = a + strip.row * a_row;
  product.a_row = a_row;
  return product;
}

/// What follows the sums of a part of a strip.
template <class T>
void Finish(const MatmulArguments<T>& x, const Strip& part, const float* sums) {
  const std::int64_t at = part.row * x.columns + part.column;
  const auto moved = [](auto* pointer, std::int64_t by) {
    return pointer == nullptr ? nullptr : pointer + by;
  };
  FinishTile<T>({.rows = part.rows,
                 .columns = part.columns,
                 .tile = sums,
                 .tile_stride = kStripColumns,
                 .stride = x.columns,
                 .bias = moved(x.bias, part.column),
                 .residual = moved(x.residual, at),
                 .c = x.c + at,
                 .gelu = x.gelu,
                 .activated = moved(x.activated, at),
                 .gelu_input = moved(x.gelu_input, at)});
}

constexpr auto kNothing = [](auto...) {};

/// `sums` has room for the strip's.
template <class T>
void MatmulStrip(const MatmulArguments<T>& x, const float* a, std::int64_t a_row,
                 const Strip& strip, float* panels, float* sums) {
  const SecondOperand<T> b{x.b, x.inner, x.columns, x.transpose_b};
  ProductArguments product = ProductOf(strip, a, a_row);
  if constexpr (std::is_same_v<T, float>) {
    if (x.bias == nullptr && x.residual == nullptr && x.gelu == GeluForm::kNone) {
      product.c = x.c + strip.row * x.columns + strip.column;
      product.c_stride = x.columns;
      return MultiplyStrip(product, b, strip.column, panels, kNothing, kNothing);
    }
  }
  product.c = sums;
  product.c_stride = kStripColumns;
  MultiplyStrip(
      product, b, strip.column, panels, kNothing, [&](std::int64_t row, std::int64_t rows) {
        Finish(x, {strip.row + row, rows, strip.column, strip.columns}, sums + row * kStripColumns);
      });
}

}  // namespace

template <class T>
void CpuDevice<T>::Matmul(const MatmulArguments<T>& x) {
  const FirstOperand<T> first{x.a, x.rows, x.inner, x.transpose_a};
  const std::int64_t size =
      kStripPanels + StripRows(x.rows, x.columns, pool_.threads()) * kStripColumns;
  float* of_threads = Scratch(pool_.threads() * size + first.ScratchSize());
  const float* a = first.InFloat(pool_, of_threads + pool_.threads() * size);
  ForStrips(pool_, x.rows, x.columns, [&](const Strip& strip, int thread) {
    float* panels = of_threads + thread * size;
    MatmulStrip(x, a, first.Stride(), strip, panels, panels + kStripPanels);
  });
}

template <class T>
void CpuDevice<T>::WeightGradient(const WeightGradientArguments<T>& x) {
  const FirstOperand<T> first{x.input, x.in, x.rows, true};
  const SecondOperand<T> d_output{x.d_output, x.rows, x.out};
  float* of_threads = Scratch(first.ScratchSize() + pool_.threads() * kStripPanels);
  const float* input = first.InFloat(pool_, of_threads + pool_.threads() * kStripPanels);
  // Without any input there still is a bias.
  ForStrips(pool_, std::max<std::int64_t>(x.in, 1), x.out, [&](const Strip& strip, int thread) {
    ProductArguments product = ProductOf(strip, input, first.Stride());
    product.rows = std::min(strip.rows, x.in - strip.row);
    product.c = x.d_weight + strip.row * x.out + strip.column;
    product.c_stride = x.out;
    product.accumulate = true;
    const bool first_rows = x.d_bias != nullptr && strip.row == 0;
    MultiplyStrip(
        product, d_output, strip.column, of_threads + thread * kStripPanels,
        [&](const float* panels, std::int64_t depth) {
          for (std::int64_t i = 0; first_rows && i < strip.columns; i += kPanelColumns) {
            AddColumns({depth, panels + i * depth, kPanelColumns, x.d_bias + strip.column + i}, 0,
                       std::min(kPanelColumns, strip.columns - i));
          }
        },
        kNothing);
  });
}

template void CpuDevice<float>::Matmul(const MatmulArguments<float>&);
template void CpuDevice<BFloat16>::Matmul(const MatmulArguments<BFloat16>&);
template void CpuDevice<Float16>::Matmul(const MatmulArguments<Float16>&);
template void CpuDevice<float>::WeightGradient(const WeightGradientArguments<float>&);
template void CpuDevice<BFloat16>::WeightGradient(const WeightGradientArguments<BFloat16>&);
template void CpuDevice<Float16>::WeightGradient(const WeightGradientArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
