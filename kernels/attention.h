// Contract of causal multi-head self-attention (Vaswani et al. 2017).
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// For each sample and head, with query, key and value rows of head_size entries:
///   scores[i, j] = query[i] . key[j] / sqrt(head_size)  for j <= i
///   output[i] = sum over j of softmax(scores[i])[j] * value[j]
/// qkv is [batch, sequence, 3, heads, head_size] in the order query, key, value; output is [batch,
/// sequence, heads, head_size]. Only the logarithm of each softmax's denominator is kept for
/// backward, which computes the probabilities anew (Dao et al. 2022). Nothing overlaps.
template <class T>
struct AttentionArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  const T* qkv = nullptr;
  T* output = nullptr;
  T* log_sum_exp = nullptr;  // [batch, heads, sequence], of the scores
};

/// Overwrites d_qkv, which has qkv's shape. output and log_sum_exp are those of forward.
template <class T>
struct AttentionBackwardArguments {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  const T* qkv = nullptr;
  const T* output = nullptr;
  const T* log_sum_exp = nullptr;
  const T* d_output = nullptr;
  T* d_qkv = nullptr;
};

}  // namespace adaptive_train::kernels
