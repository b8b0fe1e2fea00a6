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

std::size_t CountOf(const ElementRanges& ranges) {
  std::int64_t count = 0;
  for (const ElementRange& range : ranges) count += range.size();
  return static_cast<std::size_t>(count);
}

/// One place from each of up to kMost pieces of ascending ranges. A fixed stride would always
/// sample the same columns of a matrix.
std::vector<std::size_t> PlacesIn(const ElementRanges& ranges) {
  const std::size_t size = CountOf(ranges), count = std::min(LayerSamples::kMost, size);
  std::vector<std::size_t> places(count);
  auto range = ranges.begin();
  std::size_t before = 0;  // elements of the ranges before this one
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = size * i / count, to = size * (i + 1) / count;
    const std::size_t element = from + Scatter(i) % (to - from);
    while (element - before >= static_cast<std::size_t>(range->size()))
      before += static_cast<std::size_t>((range++)->size());
    places[i] = static_cast<std::size_t>(range->begin) + element - before;
  }
  return places;
}

}  // namespace

LayerSamples::LayerSamples(const ParameterLayout& layout) : taken_(kMost) {
  for (const LayerElements& layer : LayersOf(layout)) {
    const ElementRanges own = layout.OwnElements(static_cast<std::int64_t>(layer.begin),
                                                 static_cast<std::int64_t>(layer.end));
    std::vector<std::size_t> places = PlacesIn(own);
    std::vector<double> values(places.size());
    layers_.push_back({CountOf(own), std::move(places), std::move(values)});
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
