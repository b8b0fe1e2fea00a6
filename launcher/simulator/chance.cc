#include "launcher/simulator/chance.h"

#include <cmath>

namespace adaptive_train {
namespace {

/// What is drawn, stored in RandomPlace::layer.
enum : std::uint16_t { kCompute = 0, kBandwidth = 1, kLoss = 2 };

/// Ends the loop for loss probabilities near one. Probabilities worth simulating never lead to that
/// many losses in a row.
constexpr std::uint32_t kMostLosses = 1000;

}  // namespace

double Chance::Lognormal(double sigma, const RandomPlace& place) const {
  if (sigma <= 0) return 1;
  return std::exp(sigma * static_cast<double>(random_.Normal(place)) - sigma * sigma / 2);
}

double Chance::ComputeFactor(int device, int action) const {
  return Lognormal(settings_.compute_sigma, {.step = step_,
                                             .sample = static_cast<std::uint32_t>(device),
                                             .layer = kCompute,
                                             .element = static_cast<std::uint64_t>(action)});
}

double Chance::BandwidthFactor(int from, int to) const {
  return Lognormal(settings_.bandwidth_sigma, {.step = step_,
                                               .sample = static_cast<std::uint32_t>(from),
                                               .layer = kBandwidth,
                                               .element = static_cast<std::uint64_t>(to)});
}

double Chance::LossDelay(std::uint64_t message, int others) const {
  if (settings_.loss <= 0) return 0;
  const double any = 1 - std::pow(1 - settings_.loss, 1.0 + others);
  std::uint32_t losses = 0;
  while (losses < kMostLosses &&
         static_cast<double>(random_.Uniform(
             {.step = step_, .sample = losses, .layer = kLoss, .element = message})) < any)
    ++losses;
  return losses * settings_.retransmission_s;
}

}  // namespace adaptive_train
