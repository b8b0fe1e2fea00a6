// Follows the steps of one plan: when another plan should be looked for, and how long they take.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/control_message.h"

namespace adaptive_train {

/// What several steps of one plan took.
struct StepTimes {
  double median_s = 0;
  double error = 0;  // standard error of the median, relative to it
};

/// Of the seconds of steps, with a spread that lonely slow steps do not move: the median distance
/// from the median. Zeros of none; no error of fewer than 3.
StepTimes StepTimesOf(std::span<const double> steps_s);

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
  kCompare,  // the same after a move: were the steps of the plan that was left slower?
  kMeasure,  // steps have become slower for long: let the ranks measure their layers
};

/// Follows one plan's ranks from their first steps on and says when another plan should be looked
/// for: once after the warm-up, and, if wanted, after each drift. After a move it says once when
/// both plans can be compared. Not thread-safe.
class ReplanWatch {
 public:
  /// Steps that are timed once the layers are: in those before, gradients were exchanged apart.
  static constexpr std::size_t kJudgedSteps = 10;
  /// First steps that count for nothing where no layers are measured: kernels are built in them.
  static constexpr std::int64_t kFirstSteps = 3;

  struct Settings {
    std::size_t ranks = 0;
    bool after_warmup = true;  // false: the planner was asked before, by the plan of another launch
    bool on_drift = false;     // profile.online
    bool moved = false;        // this plan was moved to: it is compared with the one before
    bool warms_up = true;      // false: layers are not measured unless asked for
  };
  explicit ReplanWatch(const Settings& settings);

  /// A rank has measured its layers. True: it was the last of all ranks, whose times are now in
  /// Times().
  bool Measured(int rank, const LayerTimes& times);
  /// A step of all ranks has ended.
  ReplanAction AfterStep(double step_s);

  /// Index = rank; what was measured last.
  const std::vector<LayerTimes>& Times() const { return times_; }
  /// The steps since the layers were measured.
  StepTimes MeasuredSteps() const { return StepTimesOf(judged_); }

 private:
  const Settings settings_;
  std::vector<LayerTimes> times_;
  std::vector<bool> measured_;
  bool complete_ = false;  // every rank has measured, no decision yet
  bool decides_;
  bool compares_;
  std::int64_t to_skip_;  // steps until those that count begin
  std::vector<double> judged_;
  DriftWatch drift_;
};

}  // namespace adaptive_train
