// The scalar types of models: float64 for the oracle, float32, and the two 16-bit formats of mixed
// precision.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace adaptive_train::kernels {

/// The upper half of a float32: 8 bits of exponent, 7 of fraction.
struct BFloat16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
struct Float16 {
  std::uint16_t bits;
};

/// The type of sums over operands of type T: gradients of parameters, statistics of norms, losses,
/// master weights.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Rounds to the nearest value, ties to even; overflow gives infinity; NaN stays NaN.
constexpr BFloat16 ToBFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fff'ffffU) > 0x7f80'0000U)
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}
constexpr float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

Float16 ToFloat16(float value);
float ToFloat(Float16 value);

inline float ToFloat(float value) { return value; }
inline double ToFloat(double value) { return value; }

/// `value` in T, rounded once.
template <class T>
T Rounded(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(value);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(value);
  } else {
    return value;
  }
}

}  // namespace adaptive_train::kernels
