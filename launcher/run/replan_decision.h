// Decides whether to move to a better plan, and whether to go back: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan.h"
#include "launcher/run/replan_watch.h"

namespace adaptive_train {

/// The cost of moving to another plan in seconds: save, end the ranks, launch new ones, read.
struct MovingCost {
  double save_s = 0;
  double launch_s = 0;  // until the model is in memory
  bool save_measured = false;
  bool launch_measured = false;

  /// What is saved must be read again; reading is assumed to take as long.
  double Seconds() const { return 2 * save_s + launch_s; }
};

/// Uses what this run has measured and estimates the rest: a checkpoint by its bytes, a launch from
/// experience.
MovingCost EstimateMovingCost(std::optional<double> last_save_s, double checkpoint_bytes,
                              std::optional<double> last_launch_s);

struct ReplanDecision {
  bool adopt = false;
  std::string line;  // for people: all figures and the decision
};

/// True if the ranks do the same work in the same places.
bool SameLayout(const Plan& a, const Plan& b);

/// Compares `candidate` with the current plan. `now` is the current plan, priced by the planner
/// with the latest measurements, or without step_seconds if it cannot be. If the current plan's
/// prediction was too short, the candidate's is lengthened in proportion; it is never shortened.
///
/// The candidate is adopted under two conditions. The gain over the remaining steps exceeds the
/// cost of moving, and the gain per step exceeds a margin. The margin is a share of the measured
/// step: kLeastGain plus half of the current prediction's error, or kUnjudgedGain without a
/// prediction. In either case kSureErrors times the uncertainty is added. That combines the
/// measured step's error with `layer_error`, the relative error of the layer times behind the
/// candidate's prediction.
ReplanDecision DecideReplan(const Plan& now, const StepTimes& measured, const Plan& candidate,
                            double layer_error, std::int64_t remaining_steps,
                            const MovingCost& cost);
inline constexpr double kLeastGain = 0.05;
inline constexpr double kUnjudgedGain = 0.2;
inline constexpr double kSureErrors = 2;

struct MoveVerdict {
  bool go_back = false;
  std::string line;  // for people: both medians with their errors, and the decision
};

/// Judges a move after the fact by the steps of the old and the new plan. If the new steps are not
/// faster, the run goes back, provided that the gain over the remaining steps exceeds the cost of
/// moving again.
MoveVerdict JudgeMove(const StepTimes& before, const StepTimes& after, std::int64_t remaining_steps,
                      const MovingCost& cost);

}  // namespace adaptive_train
