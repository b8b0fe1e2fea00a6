// Says whether a step's loss stands out from those before it.
#pragma once

#include <cstdint>
#include <optional>

namespace adaptive_train {

/// How one loss compares with the steps before it.
struct LossVerdict {
  double expected = 0;  // nats per token: where the line through the steps before goes on
  double z = 0;         // standard deviations above that
  bool spike = false;
};

/// The z-score of each new loss against exponentially weighted statistics of those before: a mean
/// that follows their trend, without which the fast fall at a run's start would look like variance
/// and hide spikes, and the variance around it. Level and slope are those of the g-h filter whose
/// gains fit a line to the first losses and then fade older ones (E. Brookner, "Tracking and Kalman
/// Filtering Made Easy", 1998, section 1.2.10). A spike enters the statistics as if it were only
/// `spike_weight` deviations high, so that one does not hide the next, while a loss that stays high
/// is the new normal after some steps. A loss that is not finite has no verdict and changes
/// nothing. No I/O, no allocation; one thread.
class LossWatch {
 public:
  struct Settings {
    double window = 50;          // steps whose line and variance count
    std::int64_t warmup = 20;    // losses seen before the first verdict
    double threshold = 6;        // a z above it is a spike; losses below expectation never are
    double spike_weight = 3;     // deviations
    double least_spread = 1e-3;  // of the loss: less than this is noise even after constant losses
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
  double expected_ = 0, slope_ = 0;  // of the next loss; per step
  double variance_ = 0;              // of losses around what was expected
};

}  // namespace adaptive_train
