// float32 to binary16 and back, bit by bit.
#include "kernels/scalar.h"

namespace adaptive_train::kernels {
namespace {

constexpr std::uint32_t kSign = 0x8000'0000U;
constexpr std::uint32_t kFloatInfinity = 0x7f80'0000U;
constexpr std::uint32_t kFloatHalfLimit =
    0x477f'f000U;  // 65520: from here on, infinity is nearer than 65504
constexpr std::uint32_t kFloatHalfNormal = 0x3880'0000U;  // 2^-14, the smallest normal binary16
constexpr int kDroppedBits = 23 - 10;
constexpr std::uint32_t kExponentGap = 127 - 15;

/// value / 2^shift to the nearest integer, ties to even; shift is in [1, 31].
std::uint32_t ShiftedRounded(std::uint32_t value, std::uint32_t shift) {
  const std::uint32_t kept = value >> shift, half = 1U << (shift - 1);
  const std::uint32_t rest = value & ((1U << shift) - 1);
  return kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1 : 0);
}

}  // namespace

Float16 ToFloat16(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (all & kSign) >> 16, bits = all & ~kSign;
  const auto with_sign = [sign](std::uint32_t half) {
    return Float16{static_cast<std::uint16_t>(sign | half)};
  };
  if (bits > kFloatInfinity) return with_sign(0x7e00U | ((bits >> kDroppedBits) & 0x3ffU));
  if (bits >= kFloatHalfLimit) return with_sign(0x7c00U);
  if (bits >= kFloatHalfNormal) {
    // A carry out of the fraction raises the exponent, as it should.
    return with_sign(ShiftedRounded(bits - (kExponentGap << 23), kDroppedBits));
  }
  const std::uint32_t exponent = bits >> 23;
  // Subnormals are multiples of 2^-24; a value below half of that rounds to 0. Subnormals of
  // float32 are far below.
  if (exponent < kExponentGap - 11) return with_sign(0);
  const std::uint32_t fraction = (bits & 0x7f'ffffU) | 0x80'0000U;
  return with_sign(ShiftedRounded(fraction, kExponentGap + 14 - exponent));
}

float ToFloat(Float16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000U} << 16, bits = value.bits & 0x7fffU;
  if (bits >= 0x7c00U)
    return std::bit_cast<float>(sign | kFloatInfinity | ((bits & 0x3ffU) << kDroppedBits));
  if (bits >= 0x400U)
    return std::bit_cast<float>(sign | ((bits << kDroppedBits) + (kExponentGap << 23)));
  const float magnitude = static_cast<float>(bits) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace adaptive_train::kernels
