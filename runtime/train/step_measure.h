// Where a step's time, bytes and memory go on one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/running_clock.h"
#include "core/step_metrics.h"
#include "runtime/comm/communicator.h"

namespace adaptive_train {

/// What a rank's main thread is at. At every moment it is at one thing, so the parts add up.
enum class Activity : std::uint8_t { kOther, kCompute, kExposedComm, kBubble };
inline constexpr std::size_t kActivities = 4;

/// Measures step after step, and tells the communicator's MainThread what it is at. Waiting inside
/// of a pass is booked as what it is, not as computing first. Not thread-safe.
class StepMeasure {
 public:
  /// The communicator must outlive this.
  explicit StepMeasure(Communicator& communicator) : communicator_(communicator) {}

  /// A step begins, in which this rank computes at `pace` of its speed, 0 to 1: it sleeps after
  /// each computation as if that had taken so much longer.
  void Begin(double pace = 1);
  /// Does `work` as `activity`, then goes back to what was before; gives what it gives.
  template <class Work>
  auto As(Activity activity, Work work) {
    struct Back {
      StepMeasure& measure;
      Activity before;
      ~Back() { measure.Switch(before); }
    } back{*this, Switch(activity)};
    return work();
  }

  MainThread& main_thread() { return communicator_.transport().main_thread(); }

  /// Seconds of the step so far.
  double SecondsOf(Activity activity);
  double Seconds() const;
  /// The step's seconds by the clock and those of each activity, up to the same moment.
  void FillTimes(RankMetrics& metrics);

  /// What was sent so far belongs to no step.
  void BeginCounting();
  /// The same of one purpose.
  void Forget(Purpose purpose);
  /// The bytes since the last call, the communicator's processor time beside `select_cpu_s` of this
  /// rank's own, and the process's largest memory.
  void Fill(RankMetrics& metrics, double select_cpu_s);

 private:
  using Clock = RunningClock;

  /// Gives what was before.
  Activity Switch(Activity activity);

  Communicator& communicator_;
  Clock::time_point begin_ = Clock::now(), since_ = begin_;
  Activity now_ = Activity::kOther;
  double pace_ = 1;
  std::array<double, kActivities> seconds_{};
  std::array<std::int64_t, kPurposes> sent_before_{};
  double comm_cpu_before_ = 0;
};

}  // namespace adaptive_train
