#include "runtime/measure/layer_variance.h"

#include <algorithm>

namespace adaptive_train {

LayerVariance::LayerVariance(const ParameterLayout& layout) : samples_(layout) {
  for (const LayerSamples::Layer& layer : samples_.layers())
    sums_.push_back({.values = std::vector<double>(layer.places.size())});
}

void LayerVariance::Count() {
  ++steps_;
  for (std::size_t layer = 0; layer < sums_.size(); ++layer) {
    const std::vector<double>& values = samples_.layers()[layer].values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums_[layer].values[i] += values[i];
      sums_[layer].squares += values[i] * values[i];
    }
  }
  samples_.Clear();
}

std::vector<double> LayerVariance::Relative() const {
  std::vector<double> relative;
  for (const Sums& sums : sums_) {
    const double mean_square = sums.squares / std::max(1, steps_);
    relative.push_back(mean_square == 0 ? 0 : VarianceOf(sums) / mean_square);
  }
  return relative;
}

std::vector<double> LayerVariance::Literal() const {
  std::vector<double> literal;
  for (std::size_t layer = 0; layer < sums_.size(); ++layer)
    literal.push_back(VarianceOf(sums_[layer]) * samples_.layers()[layer].Weight());
  return literal;
}

/// Over the sampled elements: mean ||g - mean g||^2 = mean ||g||^2 - ||mean g||^2.
double LayerVariance::VarianceOf(const Sums& sums) const {
  if (steps_ < 2) return 0;
  double squares_of_sums = 0;
  for (double sum : sums.values) squares_of_sums += sum * sum;
  const double n = steps_;
  return std::max(0.0, (sums.squares - squares_of_sums / n) / n);
}

}  // namespace adaptive_train
