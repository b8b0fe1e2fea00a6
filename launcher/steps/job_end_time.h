// When the job's time is over, as Slurm says: asked again and again, as it may be moved.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/steps/child_process.h"

namespace adaptive_train {

/// One `scontrol show`, which may hang: a child that is looked at. One thread.
class ScontrolShow {
 public:
  /// Starts it. It is killed where it takes longer than `patience`.
  ScontrolShow(const std::vector<std::string>& what, std::chrono::milliseconds patience);
  /// What it has printed, at its end; empty where it failed or took too long. None: not yet. Never
  /// blocks. Not to be called after the end.
  std::optional<std::string> Poll();

 private:
  std::optional<ChildProcess> child_;  // none: it did not start
  std::chrono::steady_clock::time_point until_;
  std::string printed_;
};

/// One job's end. Never blocks. One thread.
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
  void Hear(const std::string& shown);

  const std::int64_t job_id_;
  std::optional<ScontrolShow> asked_;
  Clock::time_point asked_at_{}, polled_{};
  std::optional<std::chrono::system_clock::time_point> end_;
};

/// When Slurm kills a job that a signal has reached: preemption moves its end to that of the
/// GraceTime. Never blocks. One thread.
class KillTime {
 public:
  /// Begins to ask. Job 0 is not killed.
  KillTime(std::int64_t job_id, std::chrono::milliseconds patience);
  /// Asks on. Whether that is over: of three questions at most, each has its answer, or none within
  /// `patience`.
  bool Poll();
  /// Seconds from now. None: not known yet, the job has no end, or Slurm did not answer.
  std::optional<double> Left() const;

 private:
  using Clock = std::chrono::system_clock;
  void Hear(std::string shown);
  void Ask(const std::vector<std::string>& what) { asked_.emplace(what, patience_); }
  static double Now();
  void KilledBy(std::optional<double> left, Clock::time_point from);

  const std::chrono::milliseconds patience_;
  const Clock::time_point signalled_ = Clock::now();
  std::optional<ScontrolShow> asked_;  // the question under way
  std::string job_;                    // the first answer
  std::optional<Clock::time_point> killed_;
};

/// The same by what `scontrol show job -o` has printed at `now`, seconds since 1970. Preemption moves
/// a job's end to that of its grace, but Slurm shows no end of a job without a time limit: there
/// `scontrol show partition` says how long the grace is. None also where the job is ending already,
/// and is killed KillWait later.
std::optional<double> LeftOfRunningJob(const std::string& shown, const std::string& partition,
                                       double now);
/// Whether a partition's GraceTime counts, by what `scontrol show config` prints: otherwise it is a
/// QOS's, which only Slurm's accounting knows.
bool PartitionsPreempt(const std::string& shown);
/// Seconds from the first signal to a job that ends to its kill, as `scontrol show config` prints
/// them; none where it does not.
std::optional<double> KillWaitOf(const std::string& shown);

}  // namespace adaptive_train
