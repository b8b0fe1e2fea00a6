// Attention by products of tiles (kernels/cpu/tile_product.h). Operands go into tiles in as many
// parts as their scalars need; so do probabilities and gradients of scores, which are floats: of
// bfloat16 numbers they are rounded to such.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_pieces.h"

namespace adaptive_train::kernels::cpu {

/// The queries that TileAttention takes at a time.
inline constexpr std::int64_t kTileQueries = 256;

/// The scratch memory of one call in floats, a multiple of 16. It is aligned to 64 bytes, and calls
/// at the same time have one each.
template <class T>
std::int64_t TileAttentionScratch(const AttentionShape& shape);
template <class T>
std::int64_t TileAttentionBackwardScratch(const AttentionShape& shape);

/// Computes the output and log_sum_exp of up to kTileQueries queries of a sample's head. Requires
/// a unit. Any thread may call.
template <class T>
void TileAttention(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                   const Range& queries, float* scratch_memory);

/// Computes all gradients of a sample's key and value head, and of the query heads that use it.
/// Requires a unit. Any thread may call.
template <class T>
void TileAttentionBackward(const AttentionBackwardArguments<T>& x, std::int64_t sample,
                           std::int64_t kv_head, float* scratch_memory);

}  // namespace adaptive_train::kernels::cpu
