// The learning rate of every step: a pure function.
#pragma once

#include <cstdint>

#include "core/orders.h"

namespace adaptive_train {

struct LrSchedule {
  LrShape shape = LrShape::kCosine;
  double peak = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;

  /// The rate of step 1, 2, ..., total_steps. Rises linearly to the peak, which step warmup_steps
  /// has (step 1 without warm-up). Then constant, or falls linearly or along half a cosine so that
  /// the step after the last would have 0. Beyond total_steps: the peak if constant, otherwise 0.
  double At(std::int64_t step) const;
};

}  // namespace adaptive_train
