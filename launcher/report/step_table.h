// Formats a run's steps as rows of a table that fits its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/step_metrics.h"

namespace adaptive_train {

/// exp(loss) in a few characters, even for an untrained model.
std::string ShownPerplexity(double loss);

/// Columns: step/total, tokens so far, loss, norm (of the gradient, before clipping), lr, ms of the
/// step, tokens/s, TFLOP/s, MFU, GiB (peak memory of the largest rank). With a total of up to six
/// digits they take at most 91 characters. On shorter lines the least important columns are
/// dropped, but never step and loss. Immutable; no I/O.
class StepTable {
 public:
  explicit StepTable(std::int64_t total_steps);

  /// The column names for lines of `width` characters. No line end.
  std::string Header(std::size_t width) const;
  /// Tokens so far assume that the global batch was always as large as in this step.
  std::string Row(const StepMetrics& step, std::size_t width) const;

 private:
  std::int64_t total_;
  int step_width_;
};

}  // namespace adaptive_train
