// What a run leaves for each of its steps: metrics.jsonl and TensorBoard's event files, written
// beside the thread that hears the ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/step_metrics.h"
#include "launcher/report/event_file.h"
#include "launcher/run/background_writer.h"
#include "launcher/run/run_folder.h"

namespace adaptive_train {

/// Writes RUN/metrics.jsonl and RUN/tensorboard/. All members from one thread; none but Finish
/// waits for the file system: a shared one that stalls must not look like a launcher that is gone.
class MetricsWriter {
 public:
  /// `folder` must outlive the writer.
  explicit MetricsWriter(RunFolder& folder) : folder_(folder) {}

  /// Ranks go on after `step`, 0 = from the start: later lines of metrics.jsonl are cut off, and
  /// the next step opens a new event file that takes their points off TensorBoard's curves. Gives
  /// the first failure of the writes so far.
  Result<void> ResumeAfter(std::int64_t step);
  /// One step of all ranks, in order; its time in TensorBoard is now. Gives the first failure of
  /// the writes so far.
  Result<void> Add(const StepMetrics& step);
  /// Waits for all writes, for `deadline` at most; gives the first failure, or that one.
  Result<void> Finish(std::chrono::milliseconds deadline) { return writer_.Finish(deadline); }

 private:
  Result<void> AddEvent(const StepMetrics& step, double wall_time);

  RunFolder& folder_;
  std::optional<EventFile> events_;  // touched by the writer's tasks only
  BackgroundWriter writer_;          // last: its thread ends before what it uses
};

}  // namespace adaptive_train
