// Contract of dropout (Srivastava et al. 2014). The mask depends on where it is used, never on
// which rank computes it.
#pragma once

#include <cstdint>

#include "core/counter_random.h"

namespace adaptive_train::kernels {

/// For elements [begin, end) of samples, counted through all of them, which alone are in the arrays:
///   output[i] = residual[i] + (kept ? input[i] / (1 - probability) : 0),
/// without the residual if it is nullptr. Element e of sample b is `kept` if random.Uniform({step,
/// first_sample + b, layer, e}) >= probability. Backward is the same operation on the gradient,
/// without residual. output may be input or residual. probability is in [0, 1).
template <class T>
struct DropoutArguments {
  std::int64_t elements = 0;  // of one sample
  std::int64_t begin = 0, end = 0;
  double probability = 0;
  CounterRandom random{0, RandomPurpose::kDropout};
  std::uint32_t step = 0;
  std::uint32_t first_sample = 0;  // of the step's global batch
  std::uint16_t layer = 0;
  const T* input = nullptr;
  const T* residual = nullptr;
  T* output = nullptr;
};

}  // namespace adaptive_train::kernels
