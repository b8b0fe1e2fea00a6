#include "runtime/measure/layer_magnitudes.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace adaptive_train {
namespace {

std::size_t ClassOf(double value) {
  constexpr int kUncountedBits = 23 - LayerMagnitudes::kFractionBits;
  return std::bit_cast<std::uint32_t>(std::abs(static_cast<float>(value))) >> kUncountedBits;
}

}  // namespace

LayerMagnitudes::LayerMagnitudes(const ParameterLayout& layout)
    : samples_(layout), counts_(samples_.layers().size() * kClasses) {}

void LayerMagnitudes::Count() {
  double* counts = counts_.data();
  for (const LayerSamples::Layer& layer : samples_.layers()) {
    for (const double value : layer.values) counts[ClassOf(value)] += layer.Weight();
    counts += kClasses;
  }
  samples_.Clear();
}

}  // namespace adaptive_train
