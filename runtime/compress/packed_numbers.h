// Values at the places of a union bitmap, packed: one whole number for each bit that is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/compress/fixed_point.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {

/// The numbers at the places set in `whole`, ascending: those of `values` at the places that are
/// set in `selected` too, as many and in the same order, 0 at the others. `selected` has no place
/// that `whole` has not; both have the same length in words.
std::vector<std::int32_t> PackNumbers(std::span<const std::uint64_t> whole,
                                      std::span<const std::uint64_t> selected,
                                      std::span<const float> values, const FixedPoint& fixed_point);

/// The other way round: out[i] = value of the number at place i, 0 where the bitmap is not set. The
/// bitmap has the pieces one after the other, each in BitmapWords(length) words with zeros past the
/// end; `out` has them without gaps. False: a value is not finite.
bool UnpackNumbers(PieceLengths pieces, std::span<const std::uint64_t> whole,
                   std::span<const std::int32_t> numbers, const FixedPoint& fixed_point,
                   std::span<float> out);

}  // namespace adaptive_train
