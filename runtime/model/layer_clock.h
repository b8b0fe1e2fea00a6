// The time of one micro-batch by kind of layer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Seconds of one micro-batch; blocks are summed.
struct PassTimes {
  std::array<double, kLayerParts> forward{};
  std::array<double, kLayerParts> backward{};
};

/// Adds the seconds of its lifetime to one of `times`' sums. With nullptr it does not read the
/// clock. Requires a device whose operations are done when they return, like the CPU.
class LayerClock {
 public:
  using Sums = std::array<double, kLayerParts>;

  LayerClock(PassTimes* times, Sums PassTimes::*pass, LayerPart part)
      : sum_(times == nullptr ? nullptr : &(times->*pass)[static_cast<std::size_t>(part)]) {
    if (sum_ != nullptr) from_ = Steady::now();
  }
  ~LayerClock() {
    if (sum_ != nullptr) *sum_ += std::chrono::duration<double>(Steady::now() - from_).count();
  }
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;

 private:
  using Steady = std::chrono::steady_clock;
  double* const sum_;
  Steady::time_point from_;
};

}  // namespace adaptive_train
