// Weights as they are gathered in 8 bits: blocks of a parameter share a scale (ZeRO++'s blockwise
// quantization, Wang et al. 2023, section 3.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "runtime/exchange/gradient_buckets.h"

namespace adaptive_train {

/// Bytes of a chunk's packed weights: its matrices in blocks of kernels/arena.h, 8.25 bits a value, its vectors, which are few and of
/// another size than what lies beside them, as they are in T. Blocks begin anew with each piece.
template <class T>
std::size_t PackedBytes(const GradientChunk& chunk);

/// `out` has PackedBytes. `masters` and `weights` are whole arenas: matrices are packed from the
/// masters, so that nothing is rounded twice. A block with a value that is not finite becomes NaN.
template <class T>
void PackWeights(kernels::Device<T>& device, const GradientChunk& chunk,
                 std::span<const float> masters, std::span<const T> weights,
                 std::span<std::byte> out);

/// Writes the chunk's part of the arena `weights`, the same bits wherever it is done.
template <class T>
void UnpackWeights(kernels::Device<T>& device, const GradientChunk& chunk,
                   std::span<const std::byte> packed, std::span<T> weights);

}  // namespace adaptive_train
