// Passes over arenas: operations on whole ranges of gradients, residuals and weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adaptive_train::kernels {

// The methods of Device, applied element by element in no particular order, for counts of 0 or
// more. Ranges that are read must not overlap ranges that are written unless they are the same.
//
//   AddInto         into[i] += from[i]
//   AddDifference   into[i] += more[i] - less[i]
//   Scale           values[i] *= factor
//   ClearNotFinite  values[i] = 0 where it is NaN or infinite
//   Hash            XXH3 (64 bits) of the bytes
//
// PackInt8 cuts the values into blocks of kInt8Block; the last block may be shorter. Each block
// starts with its scale s = max |v| / 127 as a float. One byte per value follows: round(v / s)
// (block-wise quantization: Dettmers et al. 2022, section 2.1). The scale is NaN if any value of
// the block is not finite. UnpackInt8 writes s * byte, rounded to T.

inline constexpr std::size_t kInt8Block = 128;

/// Bytes that PackInt8 writes.
constexpr std::size_t Int8Bytes(std::size_t count) {
  return count + sizeof(float) * ((count + kInt8Block - 1) / kInt8Block);
}

}  // namespace adaptive_train::kernels
