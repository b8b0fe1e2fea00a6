// Gradients as integer multiples of a common quantum, so that their sums are exact in any order.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

namespace adaptive_train {

/// value = number * quantum. The quantum is a power of two, and the sum of all ranks' numbers fits
/// 32 bits. A value; both conversions are pure and the same on every processor.
class FixedPoint {
 public:
  /// For values of magnitude up to `largest` (finite, not negative), one from each of `ranks`
  /// ranks. The quantum is at most 4 * ranks * 2^-31 of the largest. It is never below float32's
  /// smallest value, of which all float32 values are multiples.
  FixedPoint(float largest, int ranks) {
    assert(std::isfinite(largest) && largest >= 0 && ranks >= 1);
    const auto most = static_cast<std::uint32_t>(INT32_MAX) / static_cast<std::uint32_t>(ranks);
    int exponent = 0;  // largest < 2^exponent
    std::frexp(largest, &exponent);
    const int bits = static_cast<int>(std::bit_width(most)) - 1;  // 2^bits <= most
    quantum_ = std::ldexp(1.0, std::max(exponent - bits, -149));
    per_quantum_ = 1 / quantum_;
  }

  double quantum() const { return quantum_; }
  /// To nearest, ties to even.
  std::int32_t NumberOf(float value) const {
    return static_cast<std::int32_t>(std::lrint(static_cast<double>(value) * per_quantum_));
  }
  /// Rounded to float32. The sum of several ranks' numbers may be infinite there.
  float ValueOf(std::int32_t number) const { return static_cast<float>(number * quantum_); }
  /// The value as sent; value - Sent(value) is exact in float32, and so is this.
  float Sent(float value) const { return ValueOf(NumberOf(value)); }

 private:
  double quantum_;
  double per_quantum_;
};

}  // namespace adaptive_train
