// Detects a step's loss that stands out from those before it.
#pragma once

#include <cstdint>
#include <optional>

namespace adaptive_train {

/// A loss compared with the steps before it.
struct LossVerdict {
  double expected = 0;  // nats per token: the extrapolated trend of the steps before
  double z = 0;         // standard deviations above `expected`
  bool spike = false;
};

/// The z-score of each new loss against exponentially weighted statistics of earlier losses: a
/// trend and the variance around it. Without the trend, the steep fall at a run's start would look
/// like variance and hide spikes. Level and slope follow a g-h filter (E. Brookner, "Tracking and
/// Kalman Filtering Made Easy", 1998, section 1.2.10): its gains fit a line to the first losses and
/// then fade older ones. A spike enters the statistics as if it were only `spike_weight` deviations
/// high. So one spike does not hide the next, but a loss that stays high becomes normal after some
/// steps. A loss that is not finite has no verdict and changes nothing. No I/O, no allocation; one
/// thread.
class LossWatch {
 public:
  struct Settings {
    double window = 50;          // steps that count for trend and variance
    std::int64_t warmup = 20;    // losses before the first verdict
    double threshold = 6;        // a larger z is a spike; low losses never are
    double spike_weight = 3;     // deviations
    double least_spread = 1e-3;  // of the loss: smaller deviations are noise
  };

  LossWatch() = default;
  explicit LossWatch(const Settings& settings) : settings_(settings) {}

  /// Compares `loss` (nats per token) with the statistics, then adds it to them. No verdict during
  /// the warm-up or for a loss that is not finite.
  std::optional<LossVerdict> Judge(double loss);

 private:
  void Enter(double loss);

  Settings settings_;
  std::int64_t seen_ = 0;
  double expected_ = 0, slope_ = 0;  // of the next loss, and per step
  double variance_ = 0;              // of losses around `expected`
};

}  // namespace adaptive_train
