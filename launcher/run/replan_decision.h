// Whether a plan is left for a better one, and whether it is gone back to: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan.h"
#include "launcher/run/replan_watch.h"

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

/// Judges `candidate` against the plan that runs. `now` is that plan as the planner prices it today
/// by what has been measured; without step_seconds where it could not. The candidate's predicted
/// step is taken to be as much too short as the present plan's prediction turned out to be, never
/// too long. It is adopted if the gain over the remaining steps exceeds the cost of moving and the
/// gain of each step a margin: a share of the measured step of kLeastGain, more by half of the
/// present prediction's error, kUnjudgedGain where there is no prediction to judge by, and in either
/// case more by kSureErrors times how uncertain the figures are: the measured step's error and
/// `layer_error`, that of the layer times which the candidate's prediction rests on (relative).
ReplanDecision DecideReplan(const Plan& now, const StepTimes& measured, const Plan& candidate,
                            double layer_error, std::int64_t remaining_steps,
                            const MovingCost& cost);
inline constexpr double kLeastGain = 0.05;
inline constexpr double kUnjudgedGain = 0.2;
inline constexpr double kSureErrors = 2;

struct MoveVerdict {
  bool go_back = false;
  std::string line;  // for a person: both medians with their errors, and what follows
};

/// Judges a move that was made: the steps of the plan that was left against those of the plan that
/// runs now. Where these are not faster, the old plan is gone back to if that gains more over the
/// remaining steps than moving again costs.
MoveVerdict JudgeMove(const StepTimes& before, const StepTimes& after, std::int64_t remaining_steps,
                      const MovingCost& cost);

}  // namespace adaptive_train
