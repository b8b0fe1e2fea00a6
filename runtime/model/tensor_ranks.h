// What the ranks that share each layer do together.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/scalar.h"
#include "runtime/model/tensor_part.h"

namespace adaptive_train {

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
  /// Each rank has its part.Of(size) of the bytes; all get the others' parts. Device memory.
  std::function<void(std::span<std::byte>)> gather = {};
};

}  // namespace adaptive_train
