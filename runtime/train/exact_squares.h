// The sum of squares of float32 numbers, exact: the same in any order and on any number of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adaptive_train {

/// A square is an integer of 48 bits times a power of two that its number's exponent sets. Integers
/// of the same exponent are added. A value; up to 2^38 numbers.
class ExactSquares {
 public:
  void Add(std::span<const float> numbers);

  /// The sum as numbers that may be added over up to 2^20 ranks in any order: integers, so that no
  /// bit is lost.
  std::vector<double> Summands() const;
  /// The sum, from such numbers of all ranks together, rounded in a fixed order. Infinite if a
  /// number was not finite.
  static double SumOf(std::span<const double> summands);

 private:
  static constexpr std::size_t kExponents = 256, kLimbs = 3;
  /// Together high 2^24 + low, in units of the exponent.
  struct Bin {
    std::uint64_t high = 0, low = 0;
  };
  std::array<Bin, kExponents> bins_{};
};

}  // namespace adaptive_train
