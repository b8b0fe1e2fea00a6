// A sample of each layer's gradient, large enough to judge the layer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// At most kMost elements of each layer, spread over it at fixed places. Tensor ranks sample what no
/// lower one has as well, so that together they see each element of the model once. Not
/// thread-safe.
class LayerSamples {
 public:
  static constexpr std::size_t kMost = 16384;

  struct Layer {
    std::size_t elements = 0;         // that are sampled from
    std::vector<std::size_t> places;  // in the arena, ascending also from layer to layer
    std::vector<double> values;       // [places], of this step so far

    /// The number of the layer's elements that one sample represents.
    double Weight() const {
      return places.empty() ? 0
                            : static_cast<double>(elements) / static_cast<double>(places.size());
    }
  };

  explicit LayerSamples(const ParameterLayout& layout);

  /// Samples elements [begin, end) of a step's gradient, which is in `memory`, before they are
  /// summed over ranks, times `scale`. Elements seen several times in a step add up, as
  /// micro-batches do.
  void Take(kernels::DeviceMemory& memory, std::span<const float> gradients, std::size_t begin,
            std::size_t end, double scale);
  /// Starts the next step.
  void Clear();
  /// As LayersOf.
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::vector<Layer> layers_;
  std::vector<float> taken_;  // room for kMost
};

}  // namespace adaptive_train
