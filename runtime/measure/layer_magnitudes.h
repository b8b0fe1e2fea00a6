// How large the elements of each layer's gradient are: what one threshold for all layers goes by.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/measure/layer_samples.h"

namespace adaptive_train {

/// A histogram of each layer's magnitudes over the steps taken. Looks at LayerSamples. Not
/// thread-safe.
class LayerMagnitudes {
 public:
  /// One class is one exponent of float32, eight bits, and the first bits of its fraction, so sizes
  /// within a class differ by an eighth at most. Classes ascend with size.
  static constexpr int kFractionBits = 3;
  static constexpr std::size_t kClasses = std::size_t{1} << (8 + kFractionBits);

  explicit LayerMagnitudes(const ParameterLayout& layout);

  /// As LayerSamples::Take.
  void Take(std::span<const float> gradients, std::size_t begin, std::size_t end, double scale) {
    samples_.Take(gradients, begin, end, scale);
  }
  /// The step is over, and counts; all that was taken was finite.
  void Count();
  /// It is over and counts for nothing.
  void Drop() { samples_.Clear(); }
  /// [kClasses], how many of the layer's elements were of each class, all steps together.
  std::span<const double> CountsOf(std::size_t layer) const {
    return std::span(counts_).subspan(layer * kClasses, kClasses);
  }

 private:
  LayerSamples samples_;
  std::vector<double> counts_;  // [layers * kClasses]
};

}  // namespace adaptive_train
