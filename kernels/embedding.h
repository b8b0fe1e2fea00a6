// Contract of the token, position and type embedding.
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// output[r, c] = token_weight[tokens[r], c] + position_weight[r mod sequence, c] + type_weight[c],
/// for r in [0, batch * sequence). The last two terms are left out where they are nullptr, the first
/// one where the token is negative: another rank has its row. Tokens lie below vocab: the code that
/// reads them from a file checks them. Terms are added in this order, or with `token_last` in the
/// order position, type, token. Ranks that share the tokens' rows then get the bits of one rank, if
/// only one of them has the other terms and all results are added up.
template <class T>
struct EmbeddingArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t columns = 0;
  const std::int32_t* tokens = nullptr;
  const T* token_weight = nullptr;     // [vocab, columns]
  const T* position_weight = nullptr;  // [sequence, columns]
  const T* type_weight = nullptr;      // [columns]: one type of token
  bool token_last = false;
  T* output = nullptr;
};

/// Adds to those gradients that are not nullptr, rows in an order that the shape alone determines. A negative token has none.
template <class T>
struct EmbeddingBackwardArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t columns = 0;
  const std::int32_t* tokens = nullptr;
  const T* d_output = nullptr;
  Accumulator<T>* d_token_weight = nullptr;
  Accumulator<T>* d_position_weight = nullptr;
  Accumulator<T>* d_type_weight = nullptr;
};

}  // namespace adaptive_train::kernels
