// When the job's time is over, as Slurm says: asked again and again, as it may be moved.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/steps/child_process.h"

namespace adaptive_train {

/// One job's end. Only LeftNow blocks. One thread.
class JobEndTime {
 public:
  /// Job 0 has no end.
  explicit JobEndTime(std::int64_t job_id) : job_id_(job_id) {}

  /// Asks Slurm if the last answer is a minute old, or if nobody has called for some seconds: a job
  /// that was suspended gets its time back.
  void Poll();
  /// Seconds from now to the job's end; none: not known yet, or Slurm does not say.
  std::optional<double> Left() const;
  /// Asks now, because of a signal, how many seconds are left until Slurm kills the job: preemption
  /// moves its end to that of the GraceTime. None: it has no end, or Slurm does not answer within
  /// `patience`. Blocks for twice as long at most.
  std::optional<double> LeftNow(std::chrono::milliseconds patience) const;

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

/// The same by what `scontrol show job -o` has printed at `now`, seconds since 1970, and of a job that
/// is preempted `scontrol show partition`: Slurm shows no end of a job without a time limit. None
/// also where the job is ending already, and is killed KillWait later.
std::optional<double> LeftOfRunningJob(const std::string& shown, const std::string& partition,
                                       double now);
/// Seconds from the first signal to a job that ends to its kill, as `scontrol show config` prints
/// them; none where it does not.
std::optional<double> KillWaitOf(const std::string& shown);

}  // namespace adaptive_train
