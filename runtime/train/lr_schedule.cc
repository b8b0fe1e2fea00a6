// Warm-up and decay of the learning rate.
#include "runtime/train/lr_schedule.h"

#include <cmath>

namespace adaptive_train {

double LrSchedule::At(std::int64_t step) const {
  constexpr double kPi = 3.14159265358979323846;
  if (step <= warmup_steps)
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (shape == LrShape::kConstant) return peak;
  if (step > total_steps) return 0;
  // The peak belongs to the last warm-up step, or to step 1 where there is none.
  const std::int64_t peak_step = warmup_steps > 0 ? warmup_steps : 1;
  const double gone =
      static_cast<double>(step - peak_step) / static_cast<double>(total_steps + 1 - peak_step);
  return shape == LrShape::kLinear ? peak * (1 - gone) : peak * 0.5 * (1 + std::cos(kPi * gone));
}

}  // namespace adaptive_train
