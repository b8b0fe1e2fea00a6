// How much each layer's gradient changes from step to step. The framework paper's analyzer uses
// this to decide how much a layer may be compressed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/measure/layer_samples.h"

namespace adaptive_train {

/// Equation (2) of the framework paper over the recorded steps, sigma^2 = mean over t of ||g_t -
/// mean g||^2. Here it is per parameter and relative to the layer's mean square of g_t: from 0, the
/// same gradient in each step, to nearly 1, only noise. As an absolute norm, the largest layer
/// would set the scale. Uses LayerSamples. Not thread-safe.
class LayerVariance {
 public:
  explicit LayerVariance(const ParameterLayout& layout);

  /// As LayerSamples::Take.
  void Take(kernels::DeviceMemory& memory, std::span<const float> gradients, std::size_t begin,
            std::size_t end, double scale) {
    samples_.Take(memory, gradients, begin, end, scale);
  }
  /// Ends a step that counts.
  void Count();
  /// Ends a step that does not count.
  void Drop() { samples_.Clear(); }
  /// One per layer; 0 with less than two steps, or if the gradient is always 0.
  std::vector<double> Relative() const;
  /// Equation (2) as the paper writes it, the layer's whole sum of squares, estimated from the
  /// samples: the largest layer sets the scale. 0 with less than two steps.
  std::vector<double> Literal() const;
  /// The layer's elements that this rank's figures are of.
  std::size_t ElementsOf(std::size_t layer) const { return samples_.layers()[layer].elements; }
  int steps() const { return steps_; }

 private:
  struct Sums {
    std::vector<double> values;  // [places], over steps
    double squares = 0;          // summed over steps and places
  };
  double VarianceOf(const Sums& sums) const;

  LayerSamples samples_;
  std::vector<Sums> sums_;  // [layers]
  int steps_ = 0;
};

}  // namespace adaptive_train
