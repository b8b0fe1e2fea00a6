#include "runtime/measure/layer_variance.h"

#include <algorithm>

namespace adaptive_train {
namespace {

/// Bits that look random, the same for the same number (splitmix64; Steele, Lea and Flood 2014).
std::uint64_t Scatter(std::uint64_t number) {
  std::uint64_t z = number * 0x9e3779b97f4a7c15ULL + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// One place out of each of up to kSamples pieces: a fixed stride would look at the same columns of
/// each matrix.
std::vector<std::size_t> PlacesIn(const LayerElements& layer) {
  const std::size_t count = std::min(LayerVariance::kSamples, layer.size());
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = layer.size() * i / count, to = layer.size() * (i + 1) / count;
    places[i] = layer.begin + from + Scatter(i) % (to - from);
  }
  return places;
}

}  // namespace

LayerVariance::LayerVariance(const ParameterLayout& layout) {
  for (const LayerElements& elements : LayersOf(layout)) {
    Layer layer;
    layer.elements = elements.size();
    layer.places = PlacesIn(elements);
    layer.taken.resize(layer.places.size());
    layer.sums.resize(layer.places.size());
    layers_.push_back(std::move(layer));
  }
}

void LayerVariance::Take(std::span<const float> gradients, std::size_t begin, std::size_t end,
                         double scale) {
  for (Layer& layer : layers_) {
    const auto first = std::lower_bound(layer.places.begin(), layer.places.end(), begin);
    const auto last = std::lower_bound(first, layer.places.end(), end);
    for (auto place = first; place != last; ++place)
      layer.taken[static_cast<std::size_t>(place - layer.places.begin())] +=
          scale * static_cast<double>(gradients[*place]);
  }
}

void LayerVariance::Count() {
  ++steps_;
  for (Layer& layer : layers_) {
    for (std::size_t i = 0; i < layer.places.size(); ++i) {
      const double g = layer.taken[i];
      layer.sums[i] += g;
      layer.squares += g * g;
    }
  }
  Drop();
}

void LayerVariance::Drop() {
  for (Layer& layer : layers_) std::fill(layer.taken.begin(), layer.taken.end(), 0.0);
}

std::vector<double> LayerVariance::Relative() const {
  std::vector<double> relative;
  for (const Layer& layer : layers_) {
    const double mean_square = layer.squares / std::max(1, steps_);
    relative.push_back(mean_square == 0 ? 0 : VarianceOf(layer) / mean_square);
  }
  return relative;
}

std::vector<double> LayerVariance::Literal() const {
  std::vector<double> literal;
  for (const Layer& layer : layers_) {
    const auto looked_at = static_cast<double>(std::max<std::size_t>(1, layer.places.size()));
    literal.push_back(VarianceOf(layer) * static_cast<double>(layer.elements) / looked_at);
  }
  return literal;
}

/// Of the elements looked at: mean ||g - mean g||^2 = mean ||g||^2 - ||mean g||^2.
double LayerVariance::VarianceOf(const Layer& layer) const {
  if (steps_ < 2) return 0;
  double squares_of_sums = 0;
  for (double sum : layer.sums) squares_of_sums += sum * sum;
  const double n = steps_;
  return std::max(0.0, (layer.squares - squares_of_sums / n) / n);
}

}  // namespace adaptive_train
