// How much each layer's gradient changes from step to step: what the framework paper's analyzer
// looks at before it decides how far a layer may be compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Equation (2) of the framework paper over the steps taken, sigma^2 = mean over t of
/// ||g_t - mean g||^2, here per parameter and relative to the layer's mean square of g_t: from 0,
/// the same gradient in each step, to nearly 1, noise alone. As an absolute norm the largest layer
/// would set the scale. At most kSamples elements of each layer are looked at, which lie spread
/// over the layer at fixed places. Not thread-safe.
class LayerVariance {
 public:
  static constexpr std::size_t kSamples = 16384;

  explicit LayerVariance(const ParameterLayout& layout);

  /// Looks at elements [begin, end) of a step's gradient, on the host, as they are before they are
  /// summed over ranks, times `scale`. What is looked at several times in a step adds up, as
  /// micro-batches do.
  void Take(std::span<const float> gradients, std::size_t begin, std::size_t end, double scale);
  /// The step is over, and counts.
  void Count();
  /// It is over and counts for nothing.
  void Drop();
  /// Of each layer; 0 where less than two steps were taken, or the gradient is 0 throughout.
  std::vector<double> Relative() const;
  /// Equation (2) as the paper writes it, the layer's whole sum of squares, from the elements that
  /// were looked at: the largest layer sets the scale. 0 where less than two steps were taken.
  std::vector<double> Literal() const;
  int steps() const { return steps_; }

 private:
  struct Layer {
    std::size_t elements = 0;
    std::vector<std::size_t> places;  // in the arena
    std::vector<double> taken;        // of this step so far
    std::vector<double> sums;         // over steps
    double squares = 0;               // over steps and places
  };
  double VarianceOf(const Layer& layer) const;

  std::vector<Layer> layers_;  // places ascend in each, and from one to the next
  int steps_ = 0;
};

}  // namespace adaptive_train
