// What the ranks that share each layer do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/scalar.h"
#include "runtime/model/tensor_part.h"

namespace adaptive_train {

/// Some rows of queries, keys and values where several neighbouring tensor ranks share a head of
/// keys and values: each computes its part of the head's columns, and attends to all of them. Device
/// memory, row-major.
template <class T>
struct SharedHead {
  std::int64_t rows = 0;
  std::int64_t queries = 0;    // columns
  std::int64_t head_size = 0;  // columns of the keys, and of the values
  std::int64_t ranks = 1;      // that share the head
  T* part = nullptr;           // [rows, queries + 2 head_size / ranks]
  T* whole = nullptr;          // [rows, queries + 2 head_size]

  std::int64_t PartSize() const { return head_size / ranks; }
  T* PartRow(std::int64_t row) const { return part + row * (queries + 2 * PartSize()); }
  T* WholeRow(std::int64_t row) const { return whole + row * (queries + 2 * head_size); }
  // The keys in a row, or the values with of = 1.
  T* InPart(std::int64_t row, std::int64_t of) const {
    return PartRow(row) + queries + of * PartSize();
  }
  T* InWhole(std::int64_t row, std::int64_t of) const {
    return WholeRow(row) + queries + of * head_size;
  }
};

/// What each tensor rank gets of a sum over whole results: its part of the rows, part.Of(rows), and
/// the residual's. Device memory.
template <class T>
struct SharedRows {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* whole = nullptr;     // [rows, columns]
  const T* residual = nullptr;  // [own rows, columns], added to the sum; may be own
  T* own = nullptr;             // [own rows, columns]
};

/// The tensor ranks of a stage, as one of them sees the others. The functions block; all ranks call
/// them in the same order, with as many values, and all get the same bits. They are empty where
/// there is one rank. They may throw.
template <class T>
struct TensorRanks {
  TensorPart part;
  /// Each value becomes the sum over the ranks. Device memory.
  std::function<void(std::span<T>)> sum;
  /// The same in host memory.
  std::function<void(std::span<kernels::Accumulator<T>>)> sum_on_host;
  const double* waited_s = nullptr;  // seconds in sums so far; nullptr: not counted
  /// Each rank has its part.Of(pieces) of pieces of so many bytes; all get the others' parts. Device
  /// memory.
  std::function<void(std::span<std::byte>, std::size_t piece)> gather = {};
  /// `whole` becomes what is in `part`, with the keys and values of all ranks that share the head.
  std::function<void(const SharedHead<T>&)> gather_head = {};
  /// `part` becomes what is in `whole`, with sums of its keys and values over these ranks.
  std::function<void(const SharedHead<T>&)> sum_head = {};
  /// This rank's rows of the sum over the ranks of whole results.
  std::function<void(const SharedRows<T>&)> sum_rows = {};
  /// The same as sum, of gradients in device memory.
  std::function<void(std::span<kernels::Accumulator<T>>)> sum_gradients = {};
};

}  // namespace adaptive_train
