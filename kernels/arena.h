// Passes over arenas: what is done to whole ranges of gradients, residuals and weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adaptive_train::kernels {

// The methods of Device, element by element and in no particular order, for counts of 0 or more.
// Ranges that are read and ranges that are written must not overlap unless they are the same.
//
//   AddInto         into[i] += from[i]
//   AddDifference   into[i] += more[i] - less[i]
//   Scale           values[i] *= factor
//   ClearNotFinite  values[i] = 0 where it is NaN or infinite
//   Hash            XXH3 (64 bits) of the bytes
//
// PackInt8 cuts the values into blocks of kInt8Block, the last one shorter, and writes of each the
// scale s = max |v| / 127 as a float, then round(v / s) as one byte a value (Dettmers et al. 2022,
// section 2.1, by blocks). A block with a value that is not finite has the scale NaN. UnpackInt8
// writes s * byte, rounded to T.

inline constexpr std::size_t kInt8Block = 128;

/// Bytes that PackInt8 writes.
constexpr std::size_t Int8Bytes(std::size_t count) {
  return count + sizeof(float) * ((count + kInt8Block - 1) / kInt8Block);
}

}  // namespace adaptive_train::kernels
