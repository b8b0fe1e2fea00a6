// Randomness in a simulation: varying speeds and lost messages.
#pragma once

#include <cstdint>

#include "core/counter_random.h"

namespace adaptive_train {

/// The distributions. All zero: nothing is random.
struct ChanceSettings {
  std::uint64_t seed = 0;
  /// Each forward, backward and update of a device has its time multiplied by a lognormal number
  /// with mean 1 and this sigma (of its logarithm).
  double compute_sigma = 0;
  /// In each step the speed of each direction between two nodes is multiplied by such a number.
  double bandwidth_sigma = 0;
  /// Probability, below 1, that a message is lost. It is sent again after `retransmission_s`.
  double loss = 0;
  double retransmission_s = 0.2;  // the smallest timeout of Linux's TCP
};

/// The random numbers of one step. Each depends on its purpose, not on the order of the draws.
class Chance {
 public:
  Chance(const ChanceSettings& settings, int step)
      : settings_(settings),
        random_(settings.seed, RandomPurpose::kSimulation),
        step_(static_cast<std::uint32_t>(step)) {}

  /// For the `action`th thing that a device computes in the step.
  double ComputeFactor(int device, int action) const;
  double BandwidthFactor(int from, int to) const;
  bool BandwidthVaries() const { return settings_.bandwidth_sigma > 0; }
  /// Seconds that the `message`th message waits because it, or one of `others` sent with it, is
  /// lost.
  double LossDelay(std::uint64_t message, int others = 0) const;

 private:
  double Lognormal(double sigma, const RandomPlace& place) const;

  const ChanceSettings settings_;
  const CounterRandom random_;
  const std::uint32_t step_;
};

}  // namespace adaptive_train
