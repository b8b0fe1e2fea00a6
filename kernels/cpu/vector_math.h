// Arithmetic written so that the compiler turns loops over it into vector instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// exp(x) to within 2 units in the last place for x in [-87, 88]; beyond, the value at the nearer
/// end. NaN gives NaN. exp(x) = 2^n exp(r) with |r| <= ln(2)/2, exp(r) by its Taylor series.
inline float Exp(float x) {
  constexpr float kRounder =
      12582912.0F;  // 1.5 * 2^23: adding it leaves the integer part in the low bits
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float rounded = x * 1.44269504F + kRounder;
  const float n = rounded - kRounder;
  const float r = x - n * 0.693359375F + n * 2.12194440e-4F;  // ln 2 in two parts, the first exact
  float series = 1.0F / 5040;
  series = series * r + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  const std::uint32_t power =
      (std::bit_cast<std::uint32_t>(rounded) << 23) + (std::uint32_t{127} << 23);
  return series * std::bit_cast<float>(power);
}

/// The sum of term(i) for i in [0, count), in S. Sixteen running sums stand side by side, so that
/// the loop vectorizes although floating-point addition must keep its order.
template <class S = float, class Term>
S SumOf(std::int64_t count, const Term& term) {
  constexpr std::int64_t kLanes = 16;
  S lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

/// The largest of count >= 1 values. NaN may be passed over.
inline float LargestOf(std::int64_t count, const float* values) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes];
  for (float& lane : lanes) lane = values[0];
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = lanes[lane] < values[i + lane] ? values[i + lane] : lanes[lane];
    }
  }
  float largest = lanes[0];
  for (const float lane : lanes) largest = largest < lane ? lane : largest;
  for (; i < count; ++i) largest = largest < values[i] ? values[i] : largest;
  return largest;
}

}  // namespace adaptive_train::kernels::cpu
