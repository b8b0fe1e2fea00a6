// The context of one pass over a micro-batch: how the stage is trained, which samples, what
// dropout.
#pragma once

#include <cstdint>

#include "core/model_shape.h"

namespace adaptive_train {

/// How a stage is trained, besides the model itself.
struct StageOptions {
  std::int64_t micro_batch = 1;  // samples, at most
  Recompute recompute = Recompute::kNone;
  double dropout = 0;         // probability, of the embedding's and each branch's output
  std::uint64_t seed = 0;     // of dropout
  bool reproducible = false;  // the same bits however many tensor ranks there are

  /// Tensor ranks that share the rows of the residual stream inside blocks; 1: each has all of them.
  std::int64_t row_ranks = 1;

  /// Tokens of a micro-batch, at most.
  std::int64_t Rows(const ModelDims& dims) const { return micro_batch * dims.sequence; }
  /// Of these, a rank's part, at most.
  std::int64_t OwnRows(const ModelDims& dims) const {
    return (Rows(dims) + row_ranks - 1) / row_ranks;
  }
};

/// The samples and the step of a pass, on which dropout depends.
struct SamplePlace {
  std::uint32_t step = 0;
  std::uint32_t first_sample = 0;  // of the step's global batch
};

/// One pass over one micro-batch. `dropout` is 0 outside of training.
struct Pass {
  std::int64_t batch = 0;
  SamplePlace place = {};
  double dropout = 0;
};

}  // namespace adaptive_train
