// The time of one micro-batch by kind of layer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "kernels/buffer.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Seconds of one micro-batch; blocks are summed.
struct PassTimes {
  std::array<double, kLayerParts> forward{};
  std::array<double, kLayerParts> backward{};
  /// Within backward: what a backward in halves leaves to its second half.
  std::array<double, kLayerParts> weight_gradients{};
};

/// Adds the seconds of its lifetime to one of `times`' sums, less those that `*waited` grows by
/// meanwhile. With nullptr for `times` it does not read the clock. Otherwise it waits at both ends
/// for what `device` has been given, which must outlive it.
class LayerClock {
 public:
  using Sums = std::array<double, kLayerParts>;

  LayerClock(kernels::DeviceMemory& device, PassTimes* times, Sums PassTimes::*pass, LayerPart part,
             const double* waited)
      : device_(device),
        sum_(times == nullptr ? nullptr : &(times->*pass)[static_cast<std::size_t>(part)]),
        waited_(waited),
        waited_before_(waited == nullptr ? 0 : *waited) {
    if (sum_ == nullptr) return;
    device_.Wait();
    from_ = Steady::now();
  }
  ~LayerClock() {
    if (sum_ == nullptr) return;
    device_.Wait();
    const double waited = waited_ == nullptr ? 0 : *waited_ - waited_before_;
    *sum_ += std::chrono::duration<double>(Steady::now() - from_).count() - waited;
  }
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;

 private:
  using Steady = std::chrono::steady_clock;
  kernels::DeviceMemory& device_;
  double* const sum_;
  const double* const waited_;
  const double waited_before_;
  Steady::time_point from_;
};

}  // namespace adaptive_train
