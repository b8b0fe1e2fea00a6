// How much each layer's gradient changes from step to step: what the framework paper's analyzer
// looks at before it decides how far a layer may be compressed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/measure/layer_samples.h"

namespace adaptive_train {

/// Equation (2) of the framework paper over the steps taken, sigma^2 = mean over t of
/// ||g_t - mean g||^2, here per parameter and relative to the layer's mean square of g_t: from 0,
/// the same gradient in each step, to nearly 1, noise alone. As an absolute norm the largest layer
/// would set the scale. Looks at LayerSamples. Not thread-safe.
class LayerVariance {
 public:
  explicit LayerVariance(const ParameterLayout& layout);

  /// As LayerSamples::Take.
  void Take(std::span<const float> gradients, std::size_t begin, std::size_t end, double scale) {
    samples_.Take(gradients, begin, end, scale);
  }
  /// The step is over, and counts.
  void Count();
  /// It is over and counts for nothing.
  void Drop() { samples_.Clear(); }
  /// Of each layer; 0 where less than two steps were taken, or the gradient is 0 throughout.
  std::vector<double> Relative() const;
  /// Equation (2) as the paper writes it, the layer's whole sum of squares, from the elements that
  /// were looked at: the largest layer sets the scale. 0 where less than two steps were taken.
  std::vector<double> Literal() const;
  int steps() const { return steps_; }

 private:
  struct Sums {
    std::vector<double> values;  // [places], over steps
    double squares = 0;          // over steps and places
  };
  double VarianceOf(const Sums& sums) const;

  LayerSamples samples_;
  std::vector<Sums> sums_;  // [layers]
  int steps_ = 0;
};

}  // namespace adaptive_train
