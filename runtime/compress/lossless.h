// Lossless compression of what messages have in four bits: zstd.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/memory_pool.h"

namespace adaptive_train {

/// Appends `bytes` to `out` in zstd's format (RFC 8878), at its fastest level that codes literals.
/// Of gradients in four bits about four fifths are left, for 1 ns a byte. False, and nothing is
/// appended, where that is no shorter. Any thread.
bool AppendCompressed(kernels::PooledVector<std::byte>& out, std::span<const std::byte> bytes);

/// What AppendCompressed made of `count` bytes; none if it is anything else. `compressed` is
/// untrusted. Any thread.
std::optional<kernels::PooledVector<std::byte>> Decompressed(std::span<const std::byte> compressed,
                                                             std::size_t count);

}  // namespace adaptive_train
