// Packs signs and sizes of a piece's values (kFloat8) into fewer than eight bits each: nearly all
// are within a few octaves of the piece's smallest size.
//
// As a byte, a code has the sign in bit 7, and below it the size relative to the smallest (0 to
// 127). In `bits` < 8 bits the sign is the top bit. A size with all lower bits set is an escape:
// the code follows as a byte after all others. With 8 bits codes are bytes and there are no
// escapes.
//
// 64 codes take 8 `bits` bytes; the last 64 are padded with zeros. They form eight bit strings:
// string c consists of bytes c, c + 8, c + 16 and so on, lowest bit first. Code i is in string i %
// 8, from bit (i / 8) * `bits` on. Words of eight codes are thus packed by shifts alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/memory_pool.h"
#include "kernels/scalar.h"

namespace adaptive_train {

inline constexpr int kLeastCodeBits = 4, kMostCodeBits = 8;
inline constexpr std::int64_t kCodesAtOnce = 64;

/// `count` rounded up to a multiple of kCodesAtOnce: the memory in bytes for that many codes.
inline std::int64_t RoomForCodes(std::int64_t count) {
  return (count + kCodesAtOnce - 1) / kCodesAtOnce * kCodesAtOnce;
}

/// How some codes are packed.
struct CodePacking {
  int bits = kMostCodeBits;
  std::uint32_t escapes = 0;
};

/// Bytes of `count` codes.
std::size_t PackedCodeBytes(std::int64_t count, const CodePacking& packing);

/// Packs codes with as many bits each as a sample suggests is shortest, at most eight. Keeps its
/// memory between calls. Not thread-safe.
class CodePacker {
 public:
  /// Appends `values` to `out`: sizes with two bits of fraction, of which number `smallest` is the
  /// least (kernels/sparsify.h).
  CodePacking AppendTo(kernels::PooledVector<std::byte>& out,
                       std::span<const kernels::BFloat16> values, int smallest);

 private:
  template <int kBits>
  void Pack(std::int64_t blocks, kernels::PooledVector<std::byte>& out);

  std::vector<std::byte> codes_, escaped_;
};

/// Unpacks codes to bytes. `codes` has RoomForCodes bytes and is undefined past the last code.
/// `packed` has PackedCodeBytes. Returns false if the number of escapes is wrong or anything
/// follows the last one.
bool UnpackCodes(std::span<const std::byte> packed, std::int64_t count, const CodePacking& packing,
                 std::byte* codes);

}  // namespace adaptive_train
