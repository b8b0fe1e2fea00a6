// Values at the places of a union bitmap, packed: one integer for each set bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/compress/fixed_point.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {

/// The numbers at the places set in `whole`, ascending. Places that are also set in `selected` take
/// `values`, which has as many, in the same order; the others are 0. `selected` must be a subset of
/// `whole` and have the same number of words.
std::vector<std::int32_t> PackNumbers(std::span<const std::uint64_t> whole,
                                      std::span<const std::uint64_t> selected,
                                      std::span<const float> values, const FixedPoint& fixed_point);

/// The inverse: out[i] = value of the number at place i, or 0 if the bit is not set. The bitmap
/// holds one piece after the other, each in BitmapWords(length) words with zeros past the end;
/// `out` has no gaps. Returns false if a value is not finite.
bool UnpackNumbers(PieceLengths pieces, std::span<const std::uint64_t> whole,
                   std::span<const std::int32_t> numbers, const FixedPoint& fixed_point,
                   std::span<float> out);

}  // namespace adaptive_train
