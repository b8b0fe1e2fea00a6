// Down at once, up after a while.
#include "runtime/train/loss_scaler.h"

#include <algorithm>

namespace adaptive_train {

void LossScaler::Update(bool finite) {
  if (!finite) {
    scale = std::max(kLeast, scale / 2);
    good_steps = 0;
  } else if (++good_steps >= kGrowthSteps) {
    scale = std::min(kMost, scale * 2);
    good_steps = 0;
  }
}

}  // namespace adaptive_train
