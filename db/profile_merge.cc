#include "db/profile_merge.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

/// The weights of two pieces of evidence in a mean.
struct Weights {
  double known, fresh;

  Weights(const Evidence& k, const Evidence& f) {
    const auto n = static_cast<double>(std::min(k.count, kMostCount));
    const auto m = static_cast<double>(std::min(f.count, kMostCount));
    known = n / (n + m);
    fresh = m / (n + m);
  }
  double Mean(double k, double f) const {
    if (k == 0 || f == 0) return k + f;
    return known * k + fresh * f;
  }
};

/// Evidence for the mean of two figures: the variances within each and between the two add up.
Evidence MergedEvidence(const Evidence& known, const Evidence& fresh, double known_figure,
                        double fresh_figure) {
  const Weights weights(known, fresh);
  const double mean = weights.Mean(known_figure, fresh_figure);
  const auto variance = [mean](const Evidence& evidence, double figure) {
    const double within = evidence.spread * figure;
    return within * within + (figure - mean) * (figure - mean);
  };
  Evidence merged;
  merged.count = std::min(known.count + fresh.count, kMostCount);
  merged.spread = std::sqrt(weights.known * variance(known, known_figure) +
                            weights.fresh * variance(fresh, fresh_figure)) /
                  mean;
  merged.measured_at = std::max(known.measured_at, fresh.measured_at);
  return merged;
}

}  // namespace

bool Contradicts(double fresh, double known, double spread) {
  return std::abs(fresh - known) > std::max(3 * spread, kSameWithin) * known;
}

bool Contradicts(const DeviceMeasurement& fresh, const DeviceMeasurement& known) {
  return Contradicts(fresh.product_flops, known.product_flops,
                     std::hypot(known.evidence.spread, fresh.evidence.spread));
}

LinkMeasurement Merged(const LinkMeasurement& known, const LinkMeasurement& fresh) {
  if (known.evidence.trust != Trust::kKnown ||
      Contradicts(fresh.bytes_per_second, known.bytes_per_second, known.evidence.spread))
    return fresh;
  const Weights weights(known.evidence, fresh.evidence);
  LinkMeasurement merged = fresh;
  merged.latency_s = weights.Mean(known.latency_s, fresh.latency_s);
  merged.bytes_per_second = weights.Mean(known.bytes_per_second, fresh.bytes_per_second);
  merged.evidence = MergedEvidence(known.evidence, fresh.evidence, known.bytes_per_second,
                                   fresh.bytes_per_second);
  return merged;
}

DeviceMeasurement Joined(const DeviceMeasurement& first, const DeviceMeasurement& second) {
  const Weights weights(first.evidence, second.evidence);
  DeviceMeasurement joined = second;
  joined.product_flops = weights.Mean(first.product_flops, second.product_flops);
  joined.bytes_per_second = weights.Mean(first.bytes_per_second, second.bytes_per_second);
  joined.transfer_s_per_byte = weights.Mean(first.transfer_s_per_byte, second.transfer_s_per_byte);
  joined.evidence =
      MergedEvidence(first.evidence, second.evidence, first.product_flops, second.product_flops);
  return joined;
}

DeviceMeasurement Merged(const DeviceMeasurement& known, const DeviceMeasurement& fresh) {
  if (known.evidence.trust != Trust::kKnown || Contradicts(fresh, known)) return fresh;
  return Joined(known, fresh);
}

LayerMeasurement Merged(const LayerMeasurement& known, const LayerMeasurement& fresh) {
  const double known_s = known.forward_s + known.backward_s;
  const double fresh_s = fresh.forward_s + fresh.backward_s;
  if (Contradicts(fresh_s, known_s, std::hypot(known.evidence.spread, fresh.evidence.spread)))
    return fresh;
  const Weights weights(known.evidence, fresh.evidence);
  LayerMeasurement merged = fresh;
  merged.forward_s = weights.Mean(known.forward_s, fresh.forward_s);
  merged.backward_s = weights.Mean(known.backward_s, fresh.backward_s);
  merged.weight_gradients_s = weights.Mean(known.weight_gradients_s, fresh.weight_gradients_s);
  merged.update_s = weights.Mean(known.update_s, fresh.update_s);
  merged.gradient_variance = weights.Mean(known.gradient_variance, fresh.gradient_variance);
  merged.evidence = MergedEvidence(known.evidence, fresh.evidence, known_s, fresh_s);
  return merged;
}

}  // namespace adaptive_train
