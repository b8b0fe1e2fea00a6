// Attention on a matrix unit (kernels/cpu/amx_product.h): all products of a head on tiles. Operands
// go into tiles in as many parts as their scalars need. Probabilities and gradients of scores are
// floats and have at least two parts, so that results are as exact as those of vectors.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_pieces.h"

namespace adaptive_train::kernels::cpu {

/// The queries that AmxAttention takes at a time.
inline constexpr std::int64_t kAmxQueries = 256;

/// The scratch memory of one call in floats, a multiple of 16. It is aligned to 64 bytes, and calls
/// at the same time have one each.
template <class T>
std::int64_t AmxAttentionScratch(const AttentionShape& shape);
template <class T>
std::int64_t AmxAttentionBackwardScratch(const AttentionShape& shape);

/// Computes the output and log_sum_exp of up to kAmxQueries queries of a sample's head. Requires
/// AmxAvailable(). Any thread may call.
template <class T>
void AmxAttention(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                  const Range& queries, float* scratch_memory);

/// Computes all gradients of a sample's key and value head, and of the query heads that use it.
/// Requires AmxAvailable(). Any thread may call.
template <class T>
void AmxAttentionBackward(const AttentionBackwardArguments<T>& x, std::int64_t sample,
                          std::int64_t kv_head, float* scratch_memory);

}  // namespace adaptive_train::kernels::cpu
