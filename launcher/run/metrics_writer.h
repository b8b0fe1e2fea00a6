// Writes metrics.jsonl and TensorBoard's event files, away from the thread that listens to the
// ranks.
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

/// Writes RUN/metrics.jsonl and RUN/tensorboard/. All members from one thread. Only Finish waits
/// for the file system: a stalled one must not make the launcher look dead.
class MetricsWriter {
 public:
  /// `folder` must outlive the writer.
  explicit MetricsWriter(RunFolder& folder) : folder_(folder) {}

  /// Ranks continue after `step`, 0 = from the start. Later lines of metrics.jsonl are cut off. The
  /// next step opens a new event file, which removes later points from TensorBoard's curves.
  /// Returns the first write failure so far.
  Result<void> ResumeAfter(std::int64_t step);
  /// Adds one step of all ranks, in order; its time in TensorBoard is now. Returns the first write
  /// failure so far.
  Result<void> Add(const StepMetrics& step);
  /// Waits for all writes, for at most `deadline`. Returns the first failure, or the missed
  /// deadline.
  Result<void> Finish(std::chrono::milliseconds deadline) { return writer_.Finish(deadline); }

 private:
  Result<void> AddEvent(const StepMetrics& step, double wall_time);

  RunFolder& folder_;
  std::optional<EventFile> events_;  // used by the writer's tasks only
  BackgroundWriter writer_;          // last: its thread ends before its data
};

}  // namespace adaptive_train
