// The part of each layer that one of several tensor ranks has.
#pragma once

#include <cstdint>

#include "core/model_shape.h"
#include "runtime/model/bucket_rule.h"

namespace adaptive_train {

/// Tensor rank `rank` of `ranks` (Shoeybi et al. 2019): attention by heads, the feed-forward by
/// columns and then rows, embedding and head by rows of the vocabulary. Norms, positions and the
/// biases of products whose results are summed over the ranks are on every rank. A value.
struct TensorPart {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;

  /// This rank's [begin, end) of so many equal things; parts differ by one at most.
  ElementRange Of(std::int64_t count) const {
    return {FractionOf(count, rank, ranks), FractionOf(count, rank + 1, ranks)};
  }
};

/// The dimensions of a rank's part as those of a narrower model: its heads, its part of the
/// feed-forward and of the vocabulary. Requires dims.CanBeSharedBy(part.ranks).
ModelDims PartOf(const ModelDims& dims, const TensorPart& part);

}  // namespace adaptive_train
