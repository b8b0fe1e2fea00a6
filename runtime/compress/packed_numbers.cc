#include "runtime/compress/packed_numbers.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runtime/compress/index_coding.h"

namespace adaptive_train {

std::vector<std::int32_t> PackNumbers(std::span<const std::uint64_t> whole,
                                      std::span<const std::uint64_t> selected,
                                      std::span<const float> values,
                                      const FixedPoint& fixed_point) {
  assert(whole.size() == selected.size());
  std::vector<std::int32_t> numbers(CountOf(whole));
  std::size_t next = 0, taken = 0;
  for (std::size_t word = 0; word < whole.size(); ++word) {
    ForEachBit(whole[word], 0, [&](std::size_t bit) {
      if ((selected[word] >> bit & 1) != 0) numbers[next] = fixed_point.NumberOf(values[taken++]);
      ++next;
    });
  }
  assert(taken == values.size());
  return numbers;
}

bool UnpackNumbers(PieceLengths pieces, std::span<const std::uint64_t> whole,
                   std::span<const std::int32_t> numbers, const FixedPoint& fixed_point,
                   std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  bool finite = true;
  std::size_t begin = 0, word = 0, next = 0;
  for (const std::int64_t length : pieces) {
    for (std::size_t i = 0; i < BitmapWords(length); ++i) {
      ForEachBit(whole[word++], begin + 64 * i, [&](std::size_t place) {
        out[place] = fixed_point.ValueOf(numbers[next++]);
        finite &= std::isfinite(out[place]);
      });
    }
    begin += static_cast<std::size_t>(length);
  }
  assert(begin == out.size() && next == numbers.size());
  return finite;
}

}  // namespace adaptive_train
