// Whether a plan is left for a better one, and when that is asked.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/plan.h"

namespace adaptive_train {

/// What it costs to go on by another plan: save, end the ranks, launch others, read. Seconds.
struct MovingCost {
  double save_s = 0;
  double launch_s = 0;  // until the model is in memory
  bool save_measured = false;
  bool launch_measured = false;

  /// What is saved must be read again; reading is taken to last as long.
  double Seconds() const { return 2 * save_s + launch_s; }
};

/// Takes what this run has measured, and estimates the rest: a checkpoint by its bytes, a launch
/// from experience.
MovingCost EstimateMovingCost(std::optional<double> last_save_s, double checkpoint_bytes,
                              std::optional<double> last_launch_s);

struct ReplanDecision {
  bool adopt = false;
  std::string line;  // for a person: what was weighed, with all figures, and what follows
};

/// True: the ranks do the same in the same places.
bool SameLayout(const Plan& a, const Plan& b);

/// Judges `candidate` against the plan that runs. `now` is that plan as the planner prices it
/// today, with what has been measured (step_seconds none: it could not). The candidate's predicted
/// step is taken to be as much too short as the present plan's prediction turned out to be, never
/// too long. It is adopted if the gain over the remaining steps exceeds the cost of moving and the
/// gain of each step a margin: a share of the measured step of kLeastGain, more by half of the
/// present prediction's error, kUnjudgedGain where there is no prediction to judge by. A pure
/// function.
ReplanDecision DecideReplan(const Plan& now, double measured_step_s, const Plan& candidate,
                            std::int64_t remaining_steps, const MovingCost& cost);
inline constexpr double kLeastGain = 0.05;
inline constexpr double kUnjudgedGain = 0.2;

/// Notices that steps have become slower for long.
class DriftWatch {
 public:
  static constexpr std::size_t kWindow = 50;     // steps
  static constexpr double kSlower = 1.2;         // than the first kWindow steps' median
  static constexpr std::int64_t kPatience = 50;  // steps in a row

  /// One step; true: the median of the last kWindow steps has been kSlower times that of the first
  /// ones for kPatience steps in a row. It then begins anew, with the speed of now as the measure.
  bool Add(double step_s);

 private:
  std::deque<double> last_;
  std::optional<double> reference_;
  std::int64_t slow_ = 0;
};

/// What is to be done after a step.
enum class ReplanAction {
  kGoOn,
  kDecide,   // all layers are measured and so is the step: ask the planner
  kMeasure,  // steps have become slower for long: let the ranks measure their layers
};

/// Follows one plan's ranks from their first steps on and says when another plan should be looked
/// for: once after the warm-up, and, if wanted, after each drift. Not thread-safe.
class ReplanWatch {
 public:
  /// Steps that are timed once the layers are: in those before, gradients were exchanged apart.
  static constexpr std::size_t kJudgedSteps = 5;

  struct Settings {
    std::size_t ranks = 0;
    bool after_warmup = true;  // false: a plan that was moved to is not left again
    bool on_drift = false;     // profile.online
  };
  explicit ReplanWatch(const Settings& settings);

  /// A rank has measured its layers. True: it was the last of all ranks, whose times are now in
  /// Times().
  bool Measured(int rank, const LayerTimes& times);
  /// A step of all ranks has ended.
  ReplanAction AfterStep(double step_s);

  /// Index = rank; what was measured last.
  const std::vector<LayerTimes>& Times() const { return times_; }
  /// Median of the steps since the layers were measured.
  double MeasuredStep() const;

 private:
  const Settings settings_;
  std::vector<LayerTimes> times_;
  std::vector<bool> measured_;
  bool complete_ = false;  // every rank has measured, no decision yet
  bool decides_;
  std::vector<double> judged_;
  DriftWatch drift_;
};

}  // namespace adaptive_train
