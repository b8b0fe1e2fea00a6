// One AdamW step over a part of the arena, each parameter with or without weight decay as its range
// says.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double square_scale = 1;  // kernels/adamw.h
};

/// Arenas of the stage in the device's memory, all of layout.size() elements; `weights`, the copy
/// that products use in mixed precision, may be empty.
template <class T>
struct OptimizerArenas {
  using Sum = kernels::Accumulator<T>;
  std::span<Sum> parameters;
  std::span<const Sum> gradients;
  std::span<Sum> first_moments;
  std::span<Sum> second_moments;
  std::span<T> weights;
};

/// Updates elements [begin, end) of the arenas. `step` is 1 for the first update; gradients are
/// taken times gradient_scale (clipping, loss scale). Elements do not depend on how the arena is
/// cut into calls.
template <class T>
void AdamWStep(kernels::Device<T>& device, const ParameterLayout& layout,
               const AdamWSettings& settings, const OptimizerArenas<T>& arenas, std::int64_t begin,
               std::int64_t end, std::int64_t step, double lr, double gradient_scale);

}  // namespace adaptive_train
