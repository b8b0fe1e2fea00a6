// Follows the steps of one plan: how long they take, and when to look for another plan.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/control_message.h"

namespace adaptive_train {

/// Statistics of several steps of one plan.
struct StepTimes {
  double median_s = 0;
  double error = 0;  // standard error of the median, relative to it
};

/// Statistics of step times with a robust spread, the median distance from the median, which single
/// slow steps do not affect. Zeros without steps; no error below 3.
StepTimes StepTimesOf(std::span<const double> steps_s);

/// Detects that steps have become slower for long.
class DriftWatch {
 public:
  static constexpr std::size_t kWindow = 50;     // steps
  static constexpr double kSlower = 1.2;         // than the first kWindow steps' median
  static constexpr std::int64_t kPatience = 50;  // steps in a row

  /// Adds one step. True if for kPatience steps in a row the median of the last kWindow steps was
  /// kSlower times that of the first ones. It then starts again, with the current speed as
  /// reference.
  bool Add(double step_s);

 private:
  std::deque<double> last_;
  std::optional<double> reference_;
  std::int64_t slow_ = 0;
};

/// What to do after a step.
enum class ReplanAction {
  kGoOn,
  kDecide,   // all layers and the step are measured: ask the planner
  kCompare,  // the same after a move: compare with the steps of the old plan
  kMeasure,  // steps have become slower for long: let the ranks measure layers
};

/// Follows one plan's ranks from their first steps. Says when to look for another plan: once after
/// the warm-up and, if enabled, after each drift. After a move it says once when both plans can be
/// compared. Not thread-safe.
class ReplanWatch {
 public:
  /// Steps timed after the layers; in earlier steps gradients were exchanged separately.
  static constexpr std::size_t kJudgedSteps = 10;
  /// First steps that are ignored if no layers are measured: kernels are built in them.
  static constexpr std::int64_t kFirstSteps = 3;

  struct Settings {
    std::size_t ranks = 0;
    bool after_warmup = true;  // false: the planner was asked in an earlier launch
    bool on_drift = false;     // profile.online
    bool moved = false;        // the run has moved to this plan: compare it with the old one
    bool warms_up = true;      // false: layers are not measured unless asked for
  };
  explicit ReplanWatch(const Settings& settings);

  /// A rank has measured its layers. True if it was the last rank; Times() then has all times.
  bool Measured(int rank, const LayerTimes& times);
  /// A step of all ranks has ended.
  ReplanAction AfterStep(double step_s);

  /// Index = rank; what was measured last.
  const std::vector<LayerTimes>& Times() const { return times_; }
  /// The steps since layers were measured.
  StepTimes MeasuredSteps() const { return StepTimesOf(judged_); }

 private:
  const Settings settings_;
  std::vector<LayerTimes> times_;
  std::vector<bool> measured_;
  bool complete_ = false;  // every rank has measured, but there is no decision yet
  bool decides_;
  bool compares_;
  std::int64_t to_skip_;  // steps until the first one that counts
  std::vector<double> judged_;
  DriftWatch drift_;
};

}  // namespace adaptive_train
