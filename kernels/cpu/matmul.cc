// Matrix products strip by strip. The epilogue is applied to each strip while it is in the cache.
#include "kernels/matmul.h"

#include <algorithm>
#include <cassert>
#include <type_traits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tile_end.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kPageFloats = 4096 / sizeof(float);
/// Such a block of sums computes so long with a line of a transposed operand that the next one comes
/// from the second-level cache meanwhile.
constexpr std::int64_t kWideBlock = 64;

/// The first operand of a vector product, [rows, inner] or transposed [inner, rows], as float32: in
/// place where it is read fast, else copied to rows in scratch memory.
template <class T>
struct FirstOperand {
  const T* values;
  std::int64_t rows;
  std::int64_t inner;
  bool transposed = false;

  /// Rows that are pages apart share one set of the first-level cache.
  bool InPlace() const {
    if (!std::is_same_v<T, float>) return false;
    return !transposed || (ProductBlockColumns() >= kWideBlock && rows % kPageFloats != 0);
  }
  /// The distance between rows. A transposed copy gets one cache line of padding: its
  /// `inner` is the rows of a batch, often a multiple of a page, which would cause cache conflicts.
  std::int64_t Stride() const { return transposed ? inner + 16 : inner; }
  std::int64_t ScratchSize() const { return InPlace() ? 0 : rows * Stride(); }

  Operand<float> InFloat(ThreadPool& pool, float* scratch) const {
    if constexpr (std::is_same_v<T, float>) {
      if (InPlace()) return {values, transposed ? rows : inner, transposed};
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
    return {scratch, Stride()};
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

/// Applies the epilogue to a part of a strip.
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

/// Requires room for the strip's sums in `sums`.
template <class T, class A>
void MatmulStrip(const MatmulArguments<T>& x, StripProduct<A, T> product, float* sums) {
  const Strip& strip = product.strip;
  if constexpr (std::is_same_v<T, float>) {
    if (x.bias == nullptr && x.residual == nullptr && x.gelu == GeluForm::kNone) {
      product.c = x.c + strip.row * x.columns + strip.column;
      product.c_stride = x.columns;
      return MultiplyStrip(product);
    }
  }
  product.c = sums;
  product.c_stride = kStripColumns;
  MultiplyStrip(
      product, [](std::int64_t, std::int64_t) {},
      [&](std::int64_t row, std::int64_t rows) {
        Finish(x, {strip.row + row, rows, strip.column, strip.columns}, sums + row * kStripColumns);
      });
}

/// Computes what one group adds to a strip, run by run.
template <class A, class B>
void MultiplyGroup(const StripProduct<A, B>& whole, const InnerGroups& groups, std::int64_t group) {
  StripProduct<A, B> part = whole;
  std::int64_t run_begin = 0;
  for (const std::int64_t run : groups.runs) {
    const std::int64_t begin = GroupBegin(run, group, groups.count),
                       end = GroupBegin(run, group + 1, groups.count);
    part.inner = end - begin;
    part.a.values = whole.a.At(0, run_begin + begin);
    part.b.values = whole.b.At(run_begin + begin, 0);
    MultiplyStrip(part);
    part.accumulate = true;
    run_begin += run;
  }
}

/// The same in groups. The first group's sums wait beside their place, since c may be the residual.
template <class A>
void MatmulGroups(const MatmulArguments<float>& x, StripProduct<A, float> product, float* sums) {
  const Strip& strip = product.strip;
  const StripPlaces places{strip.rows, strip.columns, x.c + strip.row * x.columns + strip.column,
                           x.columns, sums};
  product.c_stride = kStripColumns;
  AddTree(
      0, x.groups.count, 0,
      [&](std::int64_t group, std::int64_t place) {
        product.c = places.At(std::max<std::int64_t>(1, place));
        MultiplyGroup(product, x.groups, group);
        if (place == 0) Finish(x, strip, product.c);
      },
      [&](std::int64_t from, std::int64_t to) { places.Add(from, to); });
}

template <class T>
std::int64_t MostStripRows(const MatmulArguments<T>& x) {
  return x.groups.count > 0 ? kGroupedStripRows : kMostStripRows;
}

/// The size of a thread's scratch memory: packed operands and a strip's sums.
template <class T>
std::int64_t SizePerThread(const MatmulArguments<T>& x, int threads) {
  const std::int64_t rows = StripRows(x.rows, x.columns, threads, MostStripRows(x));
  return kStripPackedSize + StripPlaces::Size(std::max<std::int64_t>(1, x.groups.count), rows);
}

template <class T, class A>
void MatmulStrips(ThreadPool& pool, const MatmulArguments<T>& x, const Operand<A>& a, bool by_tiles,
                  float* of_threads) {
  const Operand<T> b{x.b, x.transpose_b ? x.inner : x.columns, x.transpose_b};
  const std::int64_t per_thread = SizePerThread(x, pool.threads());
  ForStrips(
      pool, x.rows, x.columns,
      [&](const Strip& strip, int thread) {
        float* packed = of_threads + thread * per_thread;
        float* sums = packed + kStripPackedSize;
        const StripProduct<A, T> product{.strip = strip,
                                         .inner = x.inner,
                                         .a = a,
                                         .b = b,
                                         .by_tiles = by_tiles,
                                         .packed = packed};
        if constexpr (std::is_same_v<T, float>) {
          if (x.groups.count > 0) return MatmulGroups(x, product, sums);
        }
        MatmulStrip(x, product, sums);
      },
      MostStripRows(x));
}

template <class T, class A>
void WeightGradientStrips(ThreadPool& pool, const WeightGradientArguments<T>& x,
                          const Operand<A>& input, bool by_tiles, float* of_threads) {
  const Operand<T> d_output{x.d_output, x.out};
  // With no input columns there still is a bias.
  ForStrips(pool, std::max<std::int64_t>(x.in, 1), x.out, [&](Strip strip, int thread) {
    const bool first_rows = strip.row == 0;
    strip.rows = std::min(strip.rows, x.in - strip.row);
    MultiplyStrip(
        StripProduct<A, T>{.strip = strip,
                           .inner = x.rows,
                           .a = input,
                           .b = d_output,
                           .c = x.d_weight + strip.row * x.out + strip.column,
                           .c_stride = x.out,
                           .accumulate = true,
                           .by_tiles = by_tiles,
                           .packed = of_threads + thread * kStripPackedSize},
        [&](std::int64_t row, std::int64_t rows) {
          if (x.d_bias == nullptr || !first_rows) return;
          AddColumns<T>({.rows = rows,
                         .columns = strip.columns,
                         .values = d_output.At(row, strip.column),
                         .stride = x.out,
                         .sums = x.d_bias + strip.column});
        },
        [](std::int64_t, std::int64_t) {});
  });
}

}  // namespace

template <class T>
void CpuDevice<T>::Matmul(const MatmulArguments<T>& x) {
  assert(x.groups.count == 0 || (std::is_same_v<T, float> && x.gelu == GeluForm::kNone));
  const FirstOperand<T> first{x.a, x.rows, x.inner, x.transpose_a};
  const std::int64_t of_threads = pool_.threads() * SizePerThread(x, pool_.threads());
  float* scratch = Scratch(of_threads + (by_tiles_ ? 0 : first.ScratchSize()));
  if (by_tiles_) {
    const Operand<T> a{x.a, x.transpose_a ? x.rows : x.inner, x.transpose_a};
    MatmulStrips(pool_, x, a, by_tiles_, scratch);
  } else {
    MatmulStrips(pool_, x, first.InFloat(pool_, scratch + of_threads), by_tiles_, scratch);
  }
}

template <class T>
void CpuDevice<T>::WeightGradient(const WeightGradientArguments<T>& x) {
  const FirstOperand<T> first{x.input, x.in, x.rows, true};
  const std::int64_t of_threads = pool_.threads() * kStripPackedSize;
  float* scratch = Scratch(of_threads + (by_tiles_ ? 0 : first.ScratchSize()));
  if (by_tiles_) {
    WeightGradientStrips(pool_, x, Operand<T>{x.input, x.in, true}, by_tiles_, scratch);
  } else {
    WeightGradientStrips(pool_, x, first.InFloat(pool_, scratch + of_threads), by_tiles_, scratch);
  }
}

template void CpuDevice<float>::Matmul(const MatmulArguments<float>&);
template void CpuDevice<BFloat16>::Matmul(const MatmulArguments<BFloat16>&);
template void CpuDevice<Float16>::Matmul(const MatmulArguments<Float16>&);
template void CpuDevice<float>::WeightGradient(const WeightGradientArguments<float>&);
template void CpuDevice<BFloat16>::WeightGradient(const WeightGradientArguments<BFloat16>&);
template void CpuDevice<Float16>::WeightGradient(const WeightGradientArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
