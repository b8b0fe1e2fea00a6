// Attention on a matrix unit (kernels/cpu/amx_product.h): all products of a head on tiles. Operands go
// into tiles in as many parts as their scalars need. Probabilities and gradients of scores are
// floats: they have at least two, so that results are those of float32.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_pieces.h"

namespace adaptive_train::kernels::cpu {

/// The queries that AmxAttention takes at a time.
inline constexpr std::int64_t kAmxQueries = 256;

/// The scratch memory in floats that a call takes, aligned to 64 bytes.
template <class T>
std::int64_t AmxAttentionScratch(const AttentionShape& shape);
template <class T>
std::int64_t AmxAttentionBackwardScratch(const AttentionShape& shape);

/// The output and log_sum_exp of up to kAmxQueries of a sample's and head's queries. Requires AmxAvailable(). Blocks; any thread
/// may call.
template <class T>
void AmxAttention(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                  const Range& queries, float* scratch);

/// All gradients of a sample's key and value head, and of the query heads that use it.
template <class T>
void AmxAttentionBackward(const AttentionBackwardArguments<T>& x, std::int64_t sample,
                          std::int64_t kv_head, float* scratch);

}  // namespace adaptive_train::kernels::cpu
