// Contract of the gated unit of Llama's feed-forward layer (Shazeer 2020).
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// output[r, c] = silu(input[r, 0, c]) * input[r, 1, c], with silu(x) = x / (1 + exp(-x)). input is
/// [rows, 2, columns]: gate, then up. Nothing overlaps.
template <class T>
struct SwigluArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* input = nullptr;
  T* output = nullptr;
};

/// Overwrites d_input[rows, 2, columns], which may be input.
template <class T>
struct SwigluBackwardArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const T* input = nullptr;
  const T* d_output = nullptr;
  T* d_input = nullptr;
};

}  // namespace adaptive_train::kernels
