// Calls of operations that Highway compiled for several instruction sets, for several scalars.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/thread_pool.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels::cpu {

/// Rows per piece of work: large enough that handing out a piece costs little.
inline std::int64_t RowsPerPiece(std::int64_t columns) {
  return std::max<std::int64_t>(1, kElementsPerPiece / std::max<std::int64_t>(1, columns));
}

/// For each T, the function that computes units [begin, end) of an operation on arrays of T.
/// Arguments<T> is the operation's own, or a struct of it and what the pieces share.
template <template <class> class Arguments>
struct PieceFunctions {
  template <class T>
  using Function = void (*)(const Arguments<T>&, std::int64_t begin, std::int64_t end);

  Function<float> on_float;
  Function<BFloat16> on_bfloat16;
  Function<Float16> on_float16;

  template <class T>
  Function<T> On() const {
    if constexpr (std::is_same_v<T, BFloat16>) {
      return on_bfloat16;
    } else if constexpr (std::is_same_v<T, Float16>) {
      return on_float16;
    } else {
      return on_float;
    }
  }
};

}  // namespace adaptive_train::kernels::cpu
