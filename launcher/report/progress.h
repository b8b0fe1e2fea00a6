// Shows the progress of a run: a row that is rewritten on a terminal, a row every few steps
// elsewhere, and a line for anything unusual.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "core/step_metrics.h"
#include "launcher/report/loss_watch.h"
#include "launcher/report/step_table.h"

namespace adaptive_train {

/// Steps per row if a run's output goes to a file. A row comes about every half minute, by the mean
/// step time, but a run of `total_steps` gets at least twenty. The result is 1, 2 or 5 times a
/// power of ten, or a twentieth of the run.
std::int64_t StepsPerRow(std::int64_t total_steps, double mean_step_s);

/// Writes to `out`, flushing each line. One thread.
class Progress {
 public:
  Progress(std::FILE* out, std::int64_t total_steps);

  /// Shows one step of all ranks, in order. `verdict` is the judgement of its loss.
  void Step(const StepMetrics& step, const std::optional<LossVerdict>& verdict);
  /// Prints a line of its own between the steps' rows.
  void Notice(const std::string& text);
  /// Leaves the cursor at the start of a line.
  void End();

 private:
  void Row(const StepMetrics& step, bool stands_out);
  void Rewrite(const StepMetrics& step, std::size_t window);
  std::string TimeLeft(std::int64_t step) const;
  void Header(std::size_t width, std::size_t window);
  void Remarks(const StepMetrics& step, const std::optional<LossVerdict>& verdict);
  void Put(const std::string& text);

  std::FILE* out_;
  const std::int64_t total_;
  const StepTable table_;
  const bool terminal_;
  bool open_line_ = false;  // the cursor is behind a row that will be rewritten
  std::string header_;      // the last one printed
  int lines_since_header_ = 0;
  double seconds_ = 0;
  std::int64_t steps_ = 0, skipped_ = 0, spikes_ = 0;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace adaptive_train
