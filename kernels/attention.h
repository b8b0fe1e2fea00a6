// Contract of multi-head self-attention (Vaswani et al. 2017) with grouped keys and values (Ainslie
// et al. 2023).
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads =
      0;  // divides heads; query head h uses key and value head h / (heads / kv_heads)
  std::int64_t head_size = 0;
  bool causal =
      true;  // a query sees keys at its own position and before; otherwise all of its sample
};

/// For each sample and head, with query, key and value rows of head_size entries:
///   scores[i, j] = query[i] . key[j] / sqrt(head_size)
///   output[i] = sum over visible j of softmax(scores[i])[j] * value[j]
/// qkv is [batch, sequence, heads + 2 kv_heads, head_size]: queries, then keys, then values. output
/// is [batch, sequence, heads, head_size]. Forward keeps only the logarithm of each softmax's
/// denominator, and backward recomputes the probabilities from it (Dao et al. 2022). No sequence x
/// sequence array is stored. Nothing overlaps.
template <class T>
struct AttentionArguments {
  AttentionShape shape;
  const T* qkv = nullptr;
  T* output = nullptr;
  Accumulator<T>* log_sum_exp = nullptr;  // [batch, heads, sequence], of the scores
};

/// Overwrites d_qkv, which has qkv's shape. output and log_sum_exp come from forward.
template <class T>
struct AttentionBackwardArguments {
  AttentionShape shape;
  const T* qkv = nullptr;
  const T* output = nullptr;
  const Accumulator<T>* log_sum_exp = nullptr;
  const T* d_output = nullptr;
  T* d_qkv = nullptr;
};

}  // namespace adaptive_train::kernels
