#include "runtime/measure/layer_samples.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace adaptive_train {
namespace {

/// Pseudo-random bits from a number (splitmix64; Steele, Lea and Flood 2014).
std::uint64_t Scatter(std::uint64_t number) {
  std::uint64_t z = number * 0x9e3779b97f4a7c15ULL + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// One place from each of up to kMost pieces. A fixed stride would always sample the same columns
/// of a matrix.
std::vector<std::size_t> PlacesIn(const LayerElements& layer) {
  const std::size_t count = std::min(LayerSamples::kMost, layer.size());
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = layer.size() * i / count, to = layer.size() * (i + 1) / count;
    places[i] = layer.begin + from + Scatter(i) % (to - from);
  }
  return places;
}

}  // namespace

LayerSamples::LayerSamples(const ParameterLayout& layout) : taken_(kMost) {
  for (const LayerElements& elements : LayersOf(layout)) {
    std::vector<std::size_t> places = PlacesIn(elements);
    std::vector<double> values(places.size());
    layers_.push_back({elements.size(), std::move(places), std::move(values)});
  }
}

void LayerSamples::Take(kernels::DeviceMemory& memory, std::span<const float> gradients,
                        std::size_t begin, std::size_t end, double scale) {
  for (Layer& layer : layers_) {
    const auto first = std::lower_bound(layer.places.begin(), layer.places.end(), begin);
    const auto last = std::lower_bound(first, layer.places.end(), end);
    if (first == last) continue;
    const std::span<const std::size_t> places(first, last);
    const std::span<float> taken = std::span(taken_).first(places.size());
    memory.GatherToHost(taken, gradients.data(), places);
    double* value = layer.values.data() + (first - layer.places.begin());
    for (const float gradient : taken) *value++ += scale * static_cast<double>(gradient);
  }
}

void LayerSamples::Clear() {
  for (Layer& layer : layers_) std::fill(layer.values.begin(), layer.values.end(), 0.0);
}

}  // namespace adaptive_train
