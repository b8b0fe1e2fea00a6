#include "launcher/report/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptive_train {

std::optional<LossVerdict> LossWatch::Judge(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;
  if (seen_ < settings_.warmup) {
    Enter(loss);
    return std::nullopt;
  }
  const double spread =
      std::max({std::sqrt(variance_), settings_.least_spread * std::abs(expected_),
                static_cast<double>(std::numeric_limits<float>::min())});  // all losses were 0
  LossVerdict verdict;
  verdict.expected = expected_;
  verdict.z = (loss - expected_) / spread;
  verdict.spike = verdict.z > settings_.threshold;
  Enter(verdict.spike ? expected_ + settings_.spike_weight * spread : loss);
  return verdict;
}

void LossWatch::Enter(double loss) {
  if (seen_++ == 0) {
    expected_ = loss;
    return;
  }
  const double n = std::min(static_cast<double>(seen_), settings_.window);
  const double surprise = loss - expected_;
  slope_ += 6 / (n * (n + 1)) * surprise;
  expected_ += 2 * (2 * n - 1) / (n * (n + 1)) * surprise + slope_;
  // A plain mean of squares until there are enough losses.
  const double weight = std::max(2 / (settings_.window + 1), 1 / (n - 1));
  variance_ += weight * (surprise * surprise - variance_);
}

}  // namespace adaptive_train
