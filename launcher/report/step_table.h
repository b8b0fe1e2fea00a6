// A run's steps as rows of a table that fits the line it is printed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/step_metrics.h"

namespace adaptive_train {

/// exp(loss) in a few characters, also of a model that has not learnt a thing.
std::string ShownPerplexity(double loss);

/// Columns: step/total, tokens so far, loss, norm (of the gradient, before clipping), lr, ms of the
/// step, tokens/s, TFLOP/s, MFU, GiB (peak memory of the largest rank). With a total of up to six
/// digits all of them take at most 91 characters; on a shorter line the ones that matter least are
/// left out, step and loss never. Immutable; no I/O.
class StepTable {
 public:
  explicit StepTable(std::int64_t total_steps);

  /// The columns' names over their columns, for lines of `width` characters. No newline.
  std::string Header(std::size_t width) const;
  /// Tokens so far are those of a run whose global batch is always as large as this step's.
  std::string Row(const StepMetrics& step, std::size_t width) const;

 private:
  std::int64_t total_;
  int step_width_;
};

}  // namespace adaptive_train
