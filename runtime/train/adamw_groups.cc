// The optimizer's walk over the arena, one run of equal weight decay at a time.
#include "runtime/train/adamw_groups.h"

#include <cstddef>

namespace adaptive_train {

template <class T>
void AdamWStep(kernels::Device<T>& device, const ParameterLayout& layout,
               const AdamWSettings& settings, const OptimizerArenas<T>& arenas, std::int64_t begin,
               std::int64_t end, std::int64_t step, double lr, double gradient_scale) {
  for (const DecayRun& run : layout.DecayRuns(begin, end)) {
    const auto first = static_cast<std::size_t>(run.begin);
    device.AdamW({.count = run.end - run.begin,
                  .parameters = arenas.parameters.data() + first,
                  .gradients = arenas.gradients.data() + first,
                  .first_moments = arenas.first_moments.data() + first,
                  .second_moments = arenas.second_moments.data() + first,
                  .weights = arenas.weights.empty() ? nullptr : arenas.weights.data() + first,
                  .step = step,
                  .lr = lr,
                  .beta1 = settings.beta1,
                  .beta2 = settings.beta2,
                  .epsilon = settings.epsilon,
                  .weight_decay = run.decay ? settings.weight_decay : 0,
                  .gradient_scale = gradient_scale,
                  .square_scale = settings.square_scale});
  }
}

#define ADAPTIVE_TRAIN_ADAMW_STEP(T)                                                           \
  template void AdamWStep(kernels::Device<T>&, const ParameterLayout&, const AdamWSettings&,   \
                          const OptimizerArenas<T>&, std::int64_t, std::int64_t, std::int64_t, \
                          double, double);
ADAPTIVE_TRAIN_ADAMW_STEP(double)
ADAPTIVE_TRAIN_ADAMW_STEP(float)
ADAPTIVE_TRAIN_ADAMW_STEP(kernels::BFloat16)
ADAPTIVE_TRAIN_ADAMW_STEP(kernels::Float16)

}  // namespace adaptive_train
