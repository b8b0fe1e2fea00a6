// What a person sees while a run trains: a line that is rewritten on a terminal, a line every few
// steps elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "core/step_metrics.h"

namespace adaptive_train {

/// Writes to `out`, flushing each line. One thread.
class Progress {
 public:
  Progress(std::FILE* out, std::int64_t total_steps);

  void Step(std::span<const RankMetrics> ranks);
  /// A line of its own between the steps' lines.
  void Notice(const std::string& text);
  /// Leaves the cursor at the start of a line.
  void End();

 private:
  void Put(const std::string& text);

  std::FILE* out_;
  const std::int64_t total_;
  const std::int64_t every_;  // steps per line
  const bool terminal_;
  bool open_line_ = false;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace adaptive_train
