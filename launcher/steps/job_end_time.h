// When the job's time is over, as Slurm says: asked again and again, as it may be moved.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/steps/child_process.h"

namespace adaptive_train {

/// One job's end. Nothing blocks. One thread.
class JobEndTime {
 public:
  /// Job 0 has no end.
  explicit JobEndTime(std::int64_t job_id) : job_id_(job_id) {}

  /// Asks Slurm if the last answer is a minute old, or if nobody has called for some seconds: a job
  /// that was suspended gets its time back.
  void Poll();
  /// Seconds from now to the job's end; none: not known yet, or Slurm does not say.
  std::optional<double> Left() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Ask(Clock::time_point now);
  void Hear(Clock::time_point now);

  const std::int64_t job_id_;
  std::optional<ChildProcess> asked_;
  std::string answer_;
  Clock::time_point asked_at_{}, polled_{};
  std::optional<std::chrono::system_clock::time_point> end_;
};

}  // namespace adaptive_train
