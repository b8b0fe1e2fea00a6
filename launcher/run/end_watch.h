// What the end of the job's time, and a stop that comes before it, mean for a run.
#pragma once

#include <cstdint>
#include <optional>

#include "core/config.h"
#include "launcher/run/save_before_end.h"
#include "launcher/steps/job_end_time.h"
#include "launcher/steps/stop_limits.h"

namespace adaptive_train {

/// Knows the job's time and what this run's steps and saves take. One thread.
class EndWatch {
 public:
  /// Job 0 has no end. `before` is checkpoint.before_end_seconds.
  EndWatch(std::int64_t job_id, AutoInt before)
      : job_id_(job_id), job_end_(job_id), saves_(before) {}

  /// Only the last of `round` steps has a state to save.
  void Step(double seconds, std::int64_t round) { saves_.Step(seconds, round); }
  void Saved(double seconds) { saves_.Saved(seconds); }

  struct Due {
    SaveBeforeEnd::Act act;
    double left_s;  // to the job's end; 0: not known
  };
  /// What is to be done now. Some times a second; does not block.
  Due Poll();
  /// What the run's stop may take, which has come by the first call. Asks Slurm; none: not known yet,
  /// to be called again soon, for two seconds at most. Does not block.
  std::optional<StopLimits> LimitsOfStop();
  /// What a save may take that begins now, as far as the end is known. Does not block.
  StopLimits LimitsNow() const;

 private:
  const std::int64_t job_id_;
  JobEndTime job_end_;
  SaveBeforeEnd saves_;
  std::optional<KillTime> stop_;  // from the stop on
};

}  // namespace adaptive_train
