#include "runtime/train/exact_squares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace adaptive_train {
namespace {

constexpr int kMantissaBits = 23, kLowBits = 24, kLimbBits = 32;
constexpr std::size_t kNotFinite = 255;
/// Squares that a table's sum of 64 bits has room for.
constexpr std::size_t kSquaresPerSum = std::size_t{1} << 16;
/// Neighbours mostly have the same exponent. With a table each, their additions need not wait for
/// each other.
constexpr std::size_t kTables = 4;

constexpr std::uint64_t MaskOf(int bits) { return (std::uint64_t{1} << bits) - 1; }

/// The power of two of an exponent's unit. Numbers without the leading bit have the exponent of the
/// least ones with it.
int PowerOf(std::size_t exponent) {
  return 2 * (std::max(static_cast<int>(exponent), 1) - 127 - kMantissaBits);
}

}  // namespace

void ExactSquares::Add(std::span<const float> numbers) {
  while (!numbers.empty()) {
    const auto piece = numbers.first(std::min(numbers.size(), kTables * kSquaresPerSum));
    numbers = numbers.subspan(piece.size());
    std::array<std::array<std::uint64_t, kExponents>, kTables> tables{};
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(piece[i]);
      const std::uint32_t exponent = bits >> kMantissaBits & 0xff;
      const std::uint64_t mantissa =
          (bits & MaskOf(kMantissaBits)) | (std::uint64_t{exponent != 0} << kMantissaBits);
      tables[i % kTables][exponent] += mantissa * mantissa;
    }
    for (const auto& table : tables) {
      for (std::size_t exponent = 0; exponent < kExponents; ++exponent) {
        bins_[exponent].high += table[exponent] >> kLowBits;
        bins_[exponent].low += table[exponent] & MaskOf(kLowBits);
      }
    }
  }
}

/// Per exponent limbs of 24, 32 and the remaining bits.
std::vector<double> ExactSquares::Summands() const {
  std::vector<double> summands;
  summands.reserve(kExponents * kLimbs);
  for (const Bin& bin : bins_) {
    const std::uint64_t upper = bin.high + (bin.low >> kLowBits);
    summands.push_back(static_cast<double>(bin.low & MaskOf(kLowBits)));
    summands.push_back(static_cast<double>(upper & MaskOf(kLimbBits)));
    summands.push_back(static_cast<double>(upper >> kLimbBits));
  }
  return summands;
}

/// Limbs of all ranks are integers below 2^53. Sums in which some carry and others do not have the
/// same value but unlike limbs, so limbs are carried first: what is added is then the same.
double ExactSquares::SumOf(std::span<const double> summands) {
  double sum = 0;
  for (std::size_t exponent = 0; exponent < kExponents; ++exponent) {
    const double* limbs = summands.data() + exponent * kLimbs;
    if (exponent == kNotFinite) {
      if (limbs[0] + limbs[1] + limbs[2] > 0) return std::numeric_limits<double>::infinity();
      continue;
    }
    const auto low = static_cast<std::uint64_t>(limbs[0]);
    const std::uint64_t middle = static_cast<std::uint64_t>(limbs[1]) + (low >> kLowBits);
    const std::uint64_t high = static_cast<std::uint64_t>(limbs[2]) + (middle >> kLimbBits);
    const int power = PowerOf(exponent);
    sum += std::ldexp(static_cast<double>(low & MaskOf(kLowBits)), power);
    sum += std::ldexp(static_cast<double>(middle & MaskOf(kLimbBits)), power + kLowBits);
    sum += std::ldexp(static_cast<double>(high), power + kLowBits + kLimbBits);
  }
  return sum;
}

}  // namespace adaptive_train
