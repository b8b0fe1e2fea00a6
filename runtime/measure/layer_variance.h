// How much each layer's gradient changes from step to step: what the framework paper's analyzer
// looks at before it decides how far a layer may be compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// The elements [begin, end) of an arena that belong to one layer.
struct LayerElements {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// The layers of an arena: embedding, blocks in order, head. What a stage does not hold is empty
/// or, of blocks, not there.
std::vector<LayerElements> LayersOf(const ParameterLayout& layout);

/// Equation (2) of the framework paper over the steps taken, sigma^2 = mean over t of
/// ||g_t - mean g||^2, here per parameter and relative to the layer's mean square of g_t: from 0,
/// the same gradient in each step, to nearly 1, noise alone. As an absolute norm the largest layer
/// would set the scale. At most kSamples elements of each layer are looked at, which lie spread
/// over the layer at fixed places. Not thread-safe.
class LayerVariance {
 public:
  static constexpr std::size_t kSamples = 16384;

  explicit LayerVariance(const ParameterLayout& layout);

  /// Looks at one step's gradient, on the host, as it is before it is summed over ranks, times
  /// `scale`.
  void Take(std::span<const float> gradients, double scale);
  /// Counts the step that was looked at last. Without it the next Take replaces that step.
  void Count();
  /// Of each layer; 0 where less than two steps were taken, or the gradient is 0 throughout.
  std::vector<double> Relative() const;
  int steps() const { return steps_; }

 private:
  struct Layer {
    std::vector<std::size_t> places;  // in the arena
    std::vector<double> taken;        // of the step that was looked at last
    std::vector<double> sums;         // over steps
    double squares = 0;               // over steps and places
  };
  std::vector<Layer> layers_;
  int steps_ = 0;
};

}  // namespace adaptive_train
