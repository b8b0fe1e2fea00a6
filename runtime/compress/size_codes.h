// Signs and sizes of a piece's values (kFloat8) in fewer than eight bits each: nearly all are
// within a few octaves of the piece's smallest size.
//
// As a byte, a code has the sign in bit 7 and below it how many sizes above the smallest (0 to
// 127). In `bits` < 8 bits it has the sign on top; a size with all lower bits set is an escape: the
// code stands as a byte behind all others. 64 codes take 8 `bits` bytes, and zeros fill up the last
// 64: code i's bits are those from bit i / 8 `bits` on of a string of which bytes i % 8, i % 8 + 8
// and so on have eight bits each, the lowest first. So words of eight codes are packed by shifts
// alone. With 8 bits codes are bytes and there are no escapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/scalar.h"

namespace adaptive_train {

inline constexpr int kLeastCodeBits = 4, kMostCodeBits = 8;
inline constexpr std::int64_t kCodesAtOnce = 64;

/// `count` rounded up to a multiple of kCodesAtOnce: bytes of memory for as many codes.
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

/// Packs codes, in as many bits each as a sample of them says is shortest; never in more than a
/// byte. Keeps memory for the next call. Not thread-safe.
class CodePacker {
 public:
  /// Appends `values`, sizes with two bits of fraction of which number `smallest` is the least
  /// (kernels/sparsify.h), to `out`.
  CodePacking AppendTo(std::vector<std::byte>& out, std::span<const kernels::BFloat16> values,
                       int smallest);

 private:
  template <int kBits>
  void Pack(std::int64_t blocks, std::vector<std::byte>& out);

  std::vector<std::byte> codes_, escaped_;
};

/// The codes as bytes; `codes` has RoomForCodes, of which what is past the last code is undefined.
/// `packed` has PackedCodeBytes. False: the codes have not as many escapes as was said, or there is
/// something behind the last one.
bool UnpackCodes(std::span<const std::byte> packed, std::int64_t count, const CodePacking& packing,
                 std::byte* codes);

}  // namespace adaptive_train
