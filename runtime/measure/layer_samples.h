// Some elements of each layer's gradient, enough to judge the layer by.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// At most kMost elements of each layer, which lie spread over it at fixed places. Not thread-safe.
class LayerSamples {
 public:
  static constexpr std::size_t kMost = 16384;

  struct Layer {
    std::size_t elements = 0;
    std::vector<std::size_t> places;  // in the arena, ascending; from one layer to the next as well
    std::vector<double> values;       // [places], of this step so far

    /// How many of the layer's elements one sample stands for.
    double Weight() const {
      return places.empty() ? 0
                            : static_cast<double>(elements) / static_cast<double>(places.size());
    }
  };

  explicit LayerSamples(const ParameterLayout& layout);

  /// Looks at elements [begin, end) of a step's gradient, on the host, as they are before they are
  /// summed over ranks, times `scale`. What is looked at several times in a step adds up, as
  /// micro-batches do.
  void Take(std::span<const float> gradients, std::size_t begin, std::size_t end, double scale);
  /// The next step begins.
  void Clear();
  /// As LayersOf.
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::vector<Layer> layers_;
};

}  // namespace adaptive_train
