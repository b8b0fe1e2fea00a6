// The rotation rate of each pair of a head's entries (Su et al. 2021), optionally scaled for longer
// sequences.
#pragma once

#include <cmath>
#include <cstdint>

namespace adaptive_train {

inline constexpr double kRopeBase = 10000;

/// Llama 3's scaling (Grattafiori et al. 2024). With the wavelength w = 2 pi / rate, in positions,
/// and n = original_sequence / w turns within the original training sequence:
///   n < low_freq_factor    the rate is divided by `factor`
///   n > high_freq_factor   the rate stays
///   between                the rate is s * rate + (1 - s) * rate / factor with
///                          s = (n - low_freq_factor) / (high_freq_factor - low_freq_factor)
struct RopeScaling {
  double factor = 1;  // 1: no scaling; the other fields are unused
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_sequence = 8192;  // tokens

  bool operator==(const RopeScaling&) const = default;
};

/// Radians per position of pair i, in [0, head_size / 2): base^(-2 i / head_size), scaled.
inline double RopeRate(double base, const RopeScaling& scaling, std::int64_t head_size,
                       std::int64_t i) {
  const double rate =
      std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
  if (scaling.factor == 1) return rate;
  constexpr double kTurn = 6.283185307179586;
  const double turns = static_cast<double>(scaling.original_sequence) * rate / kTurn;
  if (turns < scaling.low_freq_factor) return rate / scaling.factor;
  if (turns > scaling.high_freq_factor) return rate;
  const double kept =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return kept * rate + (1 - kept) * rate / scaling.factor;
}

}  // namespace adaptive_train
