#include "runtime/measure/layer_variance.h"

#include <algorithm>
#include <string>

namespace adaptive_train {
namespace {

/// The number of the block that a parameter belongs to, or -1: "h.12.ln_1.weight" is of 12.
std::int64_t BlockOf(const std::string& name) {
  return name.rfind("h.", 0) == 0 ? std::stoll(name.substr(2)) : -1;
}

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

std::vector<LayerElements> LayersOf(const ParameterLayout& layout) {
  // The arena holds them in this order; what follows the blocks is the head's.
  std::vector<LayerElements> layers(1);
  std::int64_t block = -1;
  bool blocks_over = false;
  for (const ParameterRange& range : layout.ranges()) {
    const std::int64_t of = BlockOf(range.name);
    const auto begin = static_cast<std::size_t>(range.offset);
    const bool begins_block = of >= 0 && of != block;
    const bool begins_head = of < 0 && block >= 0 && !blocks_over;
    if (begins_block || begins_head) layers.push_back({begin, begin});
    if (begins_block) block = of;
    blocks_over = blocks_over || begins_head;
    layers.back().end = begin + static_cast<std::size_t>(range.count);
  }
  if (!blocks_over) layers.push_back({layers.back().end, layers.back().end});
  return layers;
}

LayerVariance::LayerVariance(const ParameterLayout& layout) {
  for (const LayerElements& elements : LayersOf(layout)) {
    Layer layer;
    layer.places = PlacesIn(elements);
    layer.taken.resize(layer.places.size());
    layer.sums.resize(layer.places.size());
    layers_.push_back(std::move(layer));
  }
}

void LayerVariance::Take(std::span<const float> gradients, double scale) {
  for (Layer& layer : layers_) {
    for (std::size_t i = 0; i < layer.places.size(); ++i)
      layer.taken[i] = scale * static_cast<double>(gradients[layer.places[i]]);
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
}

std::vector<double> LayerVariance::Relative() const {
  std::vector<double> relative;
  for (const Layer& layer : layers_) {
    // mean ||g - mean g||^2 = mean ||g||^2 - ||mean g||^2
    double squares_of_sums = 0;
    for (double sum : layer.sums) squares_of_sums += sum * sum;
    const double n = steps_;
    relative.push_back(steps_ < 2 || layer.squares == 0
                           ? 0
                           : std::max(0.0, 1 - squares_of_sums / n / layer.squares));
  }
  return relative;
}

}  // namespace adaptive_train
