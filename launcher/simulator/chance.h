// What happens by chance in a simulation: speeds that vary and messages that are lost.
#pragma once

#include <cstdint>

#include "core/counter_random.h"

namespace adaptive_train {

/// The distributions. All zero: nothing happens by chance.
struct ChanceSettings {
  std::uint64_t seed = 0;
  /// Each forward, backward and update of a device takes its time multiplied by a lognormal number
  /// with mean 1 and this sigma (of its logarithm).
  double compute_sigma = 0;
  /// In each step each direction between two nodes has its speed multiplied by such a number.
  double bandwidth_sigma = 0;
  /// Probability, below 1, that a message is lost; it is sent again after `retransmission_s`.
  double loss = 0;
  double retransmission_s = 0.2;  // the smallest timeout of Linux's TCP
};

/// Draws of one step, each a function of what it is for, not of the order of the draws.
class Chance {
 public:
  Chance(const ChanceSettings& settings, int step)
      : settings_(settings),
        random_(settings.seed, RandomPurpose::kSimulation),
        step_(static_cast<std::uint32_t>(step)) {}

  /// Of the `action`th thing that a device computes in the step.
  double ComputeFactor(int device, int action) const;
  double BandwidthFactor(int from, int to) const;
  bool BandwidthVaries() const { return settings_.bandwidth_sigma > 0; }
  /// Seconds that the `message`th message waits since it, or one of `others` that go with it at the
  /// same time, gets lost.
  double LossDelay(std::uint64_t message, int others = 0) const;

 private:
  double Lognormal(double sigma, const RandomPlace& place) const;

  const ChanceSettings settings_;
  const CounterRandom random_;
  const std::uint32_t step_;
};

}  // namespace adaptive_train
