// Contract of the token and position embedding.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// output[r, c] = token_weight[tokens[r], c] + position_weight[r mod sequence, c], r in [0, batch *
/// sequence). Tokens must lie in [0, vocab): who reads them from a file checks them.
template <class T>
struct EmbeddingArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t columns = 0;
  const std::int32_t* tokens = nullptr;
  const T* token_weight = nullptr;     // [vocab, columns]
  const T* position_weight = nullptr;  // [sequence, columns]
  T* output = nullptr;
};

/// Adds to d_token_weight and d_position_weight, rows in ascending order.
template <class T>
struct EmbeddingBackwardArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t columns = 0;
  const std::int32_t* tokens = nullptr;
  const T* d_output = nullptr;
  T* d_token_weight = nullptr;
  T* d_position_weight = nullptr;
};

}  // namespace adaptive_train::kernels
