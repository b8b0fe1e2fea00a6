// Dynamic loss scaling for float16 gradients (Micikevicius et al. 2018).
#pragma once

#include <cstdint>

namespace adaptive_train {

/// The loss is multiplied by scale before backward and gradients are divided by it afterwards, so
/// that small ones do not vanish in float16. A gradient that is not finite halves the scale;
/// kGrowthSteps good ones in a row double it. Powers of two, so that no rounding comes from it. A
/// value; part of a run's state.
struct LossScaler {
  static constexpr std::int64_t kGrowthSteps = 1000;
  static constexpr double kInitial = 65536, kLeast = 1, kMost = 16777216;

  double scale = kInitial;
  std::int64_t good_steps = 0;  // since the last change

  void Update(bool finite);
};

}  // namespace adaptive_train
