// How products are split: results into strips of a few panels' columns, operands into panels for
// vectors (product.h) or tiles (tile_product.h).
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_end.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/inner_groups.h"

namespace adaptive_train::kernels::cpu {

/// The columns of a strip, and the rows of the panels packed for it just before use: these panels
/// stay in the second-level cache. A panel has the columns of a product's block of sums, side by
/// side: in the matrix its rows may be a multiple of a page apart, which causes cache conflicts and
/// defeats the hardware prefetcher.
inline constexpr std::int64_t kStripColumns = 384, kPanelRows = 384;

inline std::int64_t Pieces(std::int64_t count, std::int64_t piece) {
  return (count + piece - 1) / piece;
}

/// A part of a product: some rows of up to kStripColumns columns.
struct Strip {
  std::int64_t row, rows, column, columns;
};

/// A strip's sums then stay in the second-level cache.
inline constexpr std::int64_t kMostStripRows = 1024;

/// The number of rows of a strip. Panels serve all rows of their strip, so strips are as high as
/// possible. Two things limit them: every thread needs some, and a strip's sums must stay in the
/// cache. The sums do not depend on this choice (kernels/cpu/product.h).
inline std::int64_t StripRows(std::int64_t rows, std::int64_t columns, int threads,
                              std::int64_t most_rows = kMostStripRows) {
  constexpr std::int64_t kMultiple = 96, kPerThread = 2;
  const std::int64_t wanted = threads == 1 ? 1 : kPerThread * threads;
  const std::int64_t down =
      Pieces(wanted, std::max<std::int64_t>(1, Pieces(columns, kStripColumns)));
  return std::clamp(Pieces(Pieces(rows, down), kMultiple) * kMultiple, kMultiple, most_rows);
}

/// Calls body(strip, thread) for strips that cover a matrix, column of strips by column.
template <class Body>
void ForStrips(ThreadPool& pool, std::int64_t rows, std::int64_t columns, const Body& body,
               std::int64_t most_rows = kMostStripRows) {
  const std::int64_t each = StripRows(rows, columns, pool.threads(), most_rows),
                     down = Pieces(rows, each);
  pool.For(down * Pieces(columns, kStripColumns), [&](std::int64_t index, int thread) {
    const std::int64_t row = index % down * each, column = index / down * kStripColumns;
    body(Strip{row, std::min(each, rows - row), column, std::min(kStripColumns, columns - column)},
         thread);
  });
}

/// An operand of a product. Element (i, j) of the first operand [rows, inner] or the second [inner,
/// columns] lies in row i, or in row j if `transposed`. Rows are `stride` apart.
template <class T>
struct Operand {
  const T* values = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
  int parts = kTileParts<T>;  // fewer where floats hold numbers of a smaller type

  const T* At(std::int64_t i, std::int64_t j) const {
    return values + (transposed ? j * stride + i : i * stride + j);
  }
};

/// Packs rows [k, k + depth) of columns [column, column + width) of b, panel after panel.
template <class T>
void PackPanels(const Operand<T>& b, std::int64_t k, std::int64_t depth, std::int64_t column,
                std::int64_t width, float* panels) {
  const std::int64_t columns = ProductBlockColumns();
  assert(kStripColumns % columns == 0);  // panels of a strip fit its memory
  WidenArguments<T> copy{.rows = depth,
                         .columns = width,
                         .matrix = b.At(k, column),
                         .matrix_stride = b.stride,
                         .panel = panels,
                         .panel_stride = columns};
  if (!b.transposed) return WidenToPanels<T>(copy);
  copy.columns = depth;
  for (std::int64_t i = 0; i < width; i += columns) {
    copy.rows = std::min(columns, width - i);
    copy.matrix = b.At(k, column + i);
    copy.panel = panels + i * depth;
    WidenTransposed<T>(copy);
  }
}

/// The rows of the first operand that stay in the second-level cache while panels are multiplied.
inline constexpr std::int64_t kRowsAtATime = 192;

/// Multiplies by a b that is packed in panels of product.inner rows.
inline void MultiplyPanels(const ProductArguments& product) {
  ProductArguments panel = product;
  panel.b_stride = ProductBlockColumns();
  for (std::int64_t i = 0; i < product.columns; i += panel.b_stride) {
    panel.columns = std::min(panel.b_stride, product.columns - i);
    panel.b = product.b + i * product.inner;
    panel.c = product.c + i;
    Product(panel);
  }
}

/// The size in floats of the memory for a strip's packed operands: panels of b, or tiles of both.
inline constexpr std::int64_t kStripPackedSize =
    (TilesSize(kStripColumns, kPanelRows, kTileParts<float>) +
     TilesSize(kRowsAtATime, kPanelRows, kTileParts<float>)) /
    2;
static_assert(kPanelRows % kTileDepth == 0, "sums do not depend on pieces of whole tiles");
static_assert(kStripPackedSize >= kPanelRows * kStripColumns);

/// The rows and columns `strip` of a product. c is the strip's first sum.
template <class A, class B>
struct StripProduct {
  Strip strip;
  std::int64_t inner = 0;
  Operand<A> a;
  Operand<B> b;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool accumulate = false;
  bool by_tiles = false;    // requires float a if false
  float* packed = nullptr;  // room for kStripPackedSize, aligned to 64 bytes
};

/// A piece of a strip: some of its rows, and `depth` of k.
struct StripPiece {
  std::int64_t row, rows, k, depth;
};

template <class A, class B>
void PackStrip(const StripProduct<A, B>& x, std::int64_t k, std::int64_t depth) {
  const Strip& strip = x.strip;
  if (!x.by_tiles) return PackPanels(x.b, k, depth, strip.column, strip.columns, x.packed);
  PackSecondTiles<B>({.matrix = x.b.At(k, strip.column),
                      .stride = x.b.stride,
                      .along = x.b.transposed,
                      .lines = strip.columns,
                      .depth = depth,
                      .parts = x.b.parts},
                     reinterpret_cast<std::uint16_t*>(x.packed));
}

/// Packs the piece of a into tiles, and multiplies.
template <class A, class B>
void MultiplyTiles(const StripProduct<A, B>& x, const StripPiece& piece, float* c,
                   bool accumulate) {
  auto* b = reinterpret_cast<std::uint16_t*>(x.packed);
  std::uint16_t* a = b + TilesSize(x.strip.columns, piece.depth, x.b.parts);
  PackFirstTiles<A>({.matrix = x.a.At(x.strip.row + piece.row, piece.k),
                     .stride = x.a.stride,
                     .along = !x.a.transposed,
                     .lines = piece.rows,
                     .depth = piece.depth,
                     .parts = x.a.parts},
                    a);
  TileProduct({.rows = piece.rows,
               .columns = x.strip.columns,
               .inner = piece.depth,
               .a = a,
               .a_parts = x.a.parts,
               .b = b,
               .b_parts = x.b.parts,
               .c = c,
               .c_stride = x.c_stride,
               .accumulate = accumulate});
}

template <class A, class B>
void MultiplyPiece(const StripProduct<A, B>& x, const StripPiece& piece) {
  float* c = x.c + piece.row * x.c_stride;
  const bool accumulate = x.accumulate || piece.k > 0;
  if (x.by_tiles) return MultiplyTiles(x, piece, c, accumulate);
  if constexpr (std::is_same_v<A, float>) {
    MultiplyPanels({.rows = piece.rows,
                    .columns = x.strip.columns,
                    .inner = piece.depth,
                    .a = x.a.At(x.strip.row + piece.row, piece.k),
                    .a_row = x.a.transposed ? 1 : x.a.stride,
                    .a_inner = x.a.transposed ? x.a.stride : 1,
                    .b = x.packed,
                    .c = c,
                    .c_stride = x.c_stride,
                    .accumulate = accumulate});
  }
}

/// Computes a strip of a product, some rows at a time. Calls packed(k, depth) after each piece of b
/// is packed, while it is in the cache. Calls ready(row, rows) when those rows of the strip have
/// their sums.
template <class A, class B, class Packed, class Ready>
void MultiplyStrip(const StripProduct<A, B>& x, const Packed& packed, const Ready& ready) {
  std::int64_t k = 0;
  do {
    const std::int64_t depth = std::min(kPanelRows, x.inner - k);
    PackStrip(x, k, depth);
    packed(k, depth);
    for (std::int64_t row = 0; row < x.strip.rows; row += kRowsAtATime) {
      const std::int64_t rows = std::min(kRowsAtATime, x.strip.rows - row);
      MultiplyPiece(x, {row, rows, k, depth});
      if (k + kPanelRows >= x.inner) ready(row, rows);
    }
    k += kPanelRows;
  } while (k < x.inner);
}

template <class A, class B>
void MultiplyStrip(const StripProduct<A, B>& x) {
  constexpr auto kNothing = [](std::int64_t, std::int64_t) {};
  MultiplyStrip(x, kNothing, kNothing);
}

/// The same of a strip whose sums are made in groups, which takes several places of its size.
inline constexpr std::int64_t kGroupedStripRows = kRowsAtATime;

/// The places of AddTree for the sums of a strip: the result in a matrix, the others in `memory`.
/// `memory` is Size(count, rows) floats; place 1 is there with any count.
struct StripPlaces {
  std::int64_t rows, columns;
  float* result;
  std::int64_t result_stride;
  float* memory;

  static std::int64_t Size(std::int64_t count, std::int64_t rows) {
    return std::max<std::int64_t>(1, TreeDepth(count)) * rows * kStripColumns;
  }
  float* At(std::int64_t place) const {
    return place == 0 ? result : memory + (place - 1) * rows * kStripColumns;
  }
  std::int64_t Stride(std::int64_t place) const {
    return place == 0 ? result_stride : kStripColumns;
  }
  void Add(std::int64_t from, std::int64_t to) const {
    FinishTile<float>({.rows = rows,
                       .columns = columns,
                       .tile = At(from),
                       .tile_stride = Stride(from),
                       .stride = Stride(to),
                       .residual = At(to),
                       .c = At(to)});
  }
};

}  // namespace adaptive_train::kernels::cpu
