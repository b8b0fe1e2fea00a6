// How products are cut: into strips of a few panels' columns, and operands into panels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/thread_pool.h"

namespace adaptive_train::kernels::cpu {

/// Columns of a panel, which holds its rows side by side: in a matrix they may be a multiple of a
/// page apart, which caches and the processor's look-ahead take badly. As wide as what registers
/// hold of a product's sums, or a multiple.
inline constexpr std::int64_t kPanelColumns = 64;
/// Of a product in one piece, and rows of the panels that are packed for it just before they are
/// used: they stay in the second-level cache.
inline constexpr std::int64_t kStripColumns = 6 * kPanelColumns, kPanelRows = 384;
inline constexpr std::int64_t kStripPanels = kPanelRows * kStripColumns;  // floats

inline std::int64_t Pieces(std::int64_t count, std::int64_t piece) {
  return (count + piece - 1) / piece;
}

/// A part of a product: some rows of up to kStripColumns columns.
struct Strip {
  std::int64_t row, rows, column, columns;
};

/// How many rows strips have. Panels serve all rows of their strip, so strips are as high as leaves
/// enough of them for the threads, and sums of a strip in the second-level cache. What a product's
/// sums are does not depend on it (kernels/cpu/product.h).
inline std::int64_t StripRows(std::int64_t rows, std::int64_t columns, int threads) {
  constexpr std::int64_t kMostRows = 1024, kMultiple = 48, kPerThread = 2;
  const std::int64_t wanted = threads == 1 ? 1 : kPerThread * threads;
  const std::int64_t down =
      Pieces(wanted, std::max<std::int64_t>(1, Pieces(columns, kStripColumns)));
  return std::clamp(Pieces(Pieces(rows, down), kMultiple) * kMultiple, kMultiple, kMostRows);
}

/// Calls body(strip, thread) for strips that cover a matrix, those of a column one after the other.
template <class Body>
void ForStrips(ThreadPool& pool, std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t each = StripRows(rows, columns, pool.threads()), down = Pieces(rows, each);
  pool.For(down * Pieces(columns, kStripColumns), [&](std::int64_t index, int thread) {
    const std::int64_t row = index % down * each, column = index / down * kStripColumns;
    body(Strip{row, std::min(each, rows - row), column, std::min(kStripColumns, columns - column)},
         thread);
  });
}

/// A product's second operand, [inner, columns], or transposed [columns, inner].
template <class T>
struct SecondOperand {
  const T* values;
  std::int64_t inner;
  std::int64_t columns;
  bool transposed = false;

  /// Packs rows [k, k + depth) of columns [column, column + width), panel after panel.
  void Pack(std::int64_t k, std::int64_t depth, std::int64_t column, std::int64_t width,
            float* panels) const {
    for (std::int64_t i = 0; i < width; i += kPanelColumns) {
      const std::int64_t here = std::min(kPanelColumns, width - i);
      WidenArguments<T> copy{.panel = panels + i * depth, .panel_stride = kPanelColumns};
      copy.rows = transposed ? here : depth;
      copy.columns = transposed ? depth : here;
      copy.matrix_stride = transposed ? inner : columns;
      copy.matrix = values + (transposed ? (column + i) * inner + k : k * columns + column + i);
      transposed ? WidenTransposed<T>(copy) : Widen<T>(copy);
    }
  }
};

/// So many rows of the first operand stay in the second-level cache while panels go by.
inline constexpr std::int64_t kRowsAtATime = 192;

/// A product whose b is panels of product.inner rows.
inline void MultiplyPanels(const ProductArguments& product) {
  ProductArguments piece = product;
  piece.b_stride = kPanelColumns;
  for (std::int64_t row = 0; row < product.rows; row += kRowsAtATime) {
    piece.rows = std::min(kRowsAtATime, product.rows - row);
    piece.a = product.a + row * product.a_row;
    for (std::int64_t i = 0; i < product.columns; i += kPanelColumns) {
      piece.columns = std::min(kPanelColumns, product.columns - i);
      piece.b = product.b + i * product.inner;
      piece.c = product.c + row * product.c_stride + i;
      Product(piece);
    }
  }
}

/// Computes a strip of a product, some rows at a time. `product` says all but inner and b; `panels`
/// has room for kStripPanels floats. packed(panels, depth) is called after each piece of b was
/// packed, ready(row, rows) when so many of the strip's rows have their sums, still in the cache.
template <class T, class Packed, class Ready>
void MultiplyStrip(ProductArguments product, const SecondOperand<T>& b, std::int64_t column,
                   float* panels, const Packed& packed, const Ready& ready) {
  const ProductArguments strip = product;
  product.b = panels;
  std::int64_t k = 0;
  do {
    product.inner = std::min(kPanelRows, b.inner - k);
    b.Pack(k, product.inner, column, product.columns, panels);
    packed(panels, product.inner);
    for (std::int64_t row = 0; row < strip.rows; row += kRowsAtATime) {
      product.rows = std::min(kRowsAtATime, strip.rows - row);
      product.a = strip.a + row * strip.a_row + k * strip.a_inner;
      product.c = strip.c + row * strip.c_stride;
      MultiplyPanels(product);
      if (k + kPanelRows >= b.inner) ready(row, product.rows);
    }
    product.accumulate = true;
    k += kPanelRows;
  } while (k < b.inner);
}

}  // namespace adaptive_train::kernels::cpu
