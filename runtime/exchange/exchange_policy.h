// How much each layer's gradients are compressed in one step.
#pragma once

#include <optional>
#include <vector>

#include "kernels/sparsify.h"

namespace adaptive_train {

/// A value. All ranks must follow the same one in the same step.
struct ExchangePolicy {
  /// [layers as LayersOf]: the share of each matrix's elements that is sent to the owners of their
  /// chunks, in (0, 1]. None: the layer is summed whole, in float32, around the ring. Beyond the
  /// end: none.
  std::vector<std::optional<double>> density;
  kernels::ValueFormat format = kernels::ValueFormat::kBFloat16;  // sent to the owners
  /// beta of the framework paper's equation (5), the share of its residual that an unsent element
  /// keeps; 1 is standard error feedback.
  double keep = 1;

  /// What goes to the owners and back goes through zstd, which takes processors and loses nothing.
  bool zstd = false;

  /// Compressed layers go as a count sketch (TAGC) instead of through the owners, in fixed point
  /// instead of `format`.
  bool sketch = false;

  std::optional<double> DensityOf(int layer) const {
    const auto index = static_cast<std::size_t>(layer);
    return index < density.size() ? density[index] : std::nullopt;
  }
};

}  // namespace adaptive_train
