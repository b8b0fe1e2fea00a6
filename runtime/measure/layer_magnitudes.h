// The sizes of the elements of each layer's gradient, for one threshold over all layers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/measure/layer_samples.h"

namespace adaptive_train {

/// A histogram of each layer's magnitudes over the recorded steps, from LayerSamples. Not
/// thread-safe.
class LayerMagnitudes {
 public:
  /// A class is one exponent of float32, eight bits, and the first bits of its fraction. Sizes
  /// within a class differ by at most an eighth. Classes ascend with size.
  static constexpr int kFractionBits = 3;
  static constexpr std::size_t kClasses = std::size_t{1} << (8 + kFractionBits);

  explicit LayerMagnitudes(const ParameterLayout& layout);

  /// As LayerSamples::Take.
  void Take(kernels::DeviceMemory& memory, std::span<const float> gradients, std::size_t begin,
            std::size_t end, double scale) {
    samples_.Take(memory, gradients, begin, end, scale);
  }
  /// Ends a step that counts. All of its gradients were finite.
  void Count();
  /// Ends a step that does not count.
  void Drop() { samples_.Clear(); }
  /// [kClasses], the number of the layer's elements in each class, over all steps.
  std::span<const double> CountsOf(std::size_t layer) const {
    return std::span(counts_).subspan(layer * kClasses, kClasses);
  }

 private:
  LayerSamples samples_;
  std::vector<double> counts_;  // [layers * kClasses]
};

}  // namespace adaptive_train
