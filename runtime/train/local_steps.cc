#include "runtime/train/local_steps.h"

namespace adaptive_train {

/// While the learning rate rises moments are young, and updates of one replica's gradients lead
/// apart.
LocalSteps LocalSteps::Of(const Config& config, const Plan& plan) {
  if (plan.orders.compression.mode != CompressionMode::kLocal || plan.data == 1) return {};
  return {config.optimizer.warmup_steps, RoundOf(plan)};
}

}  // namespace adaptive_train
