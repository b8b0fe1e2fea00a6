// Where the time of one micro-batch goes, by kind of layer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Seconds of one micro-batch; those of all blocks together.
struct PassTimes {
  std::array<double, kLayerParts> forward{};
  std::array<double, kLayerParts> backward{};
};

/// Adds the seconds from its construction to its destruction to one of `times`' sums; with nullptr
/// it does not even look at the clock. The device's operations must be done when they return, as a
/// processor's are.
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
