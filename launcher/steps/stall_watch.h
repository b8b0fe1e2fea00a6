// Notices that no step ends for long, and when ranks are to be asked why.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "core/running_clock.h"
#include "launcher/steps/diagnosis.h"

namespace adaptive_train {

/// A stall is told after Limit() without a step, and again each time that it has lasted twice as
/// long. The caller passes the time; one thread.
class StallWatch {
 public:
  using Time = RunningClock::time_point;

  /// Before the first step, which may come after a checkpoint was read.
  static constexpr std::chrono::seconds kFirstStepLimit{60};
  static constexpr std::chrono::seconds kLeastLimit{10};
  /// Of the median of the last steps.
  static constexpr int kUsualSteps = 5;
  /// Of the longest of a round's steps.
  static constexpr int kRoundEnds = 2;
  /// From the question to the line that is made of the answers.
  static constexpr std::chrono::seconds kAnswerTime{1};

  /// Ranks begin to train. Of so many steps in a row one takes longer than the others, as it ends a
  /// round.
  void Begin(Time now, std::int64_t round = 1);
  /// Ranks hold the state after `step`.
  void Resumed(std::int64_t step, Time now) {
    step_ = step;
    since_ = now;
  }
  /// A step of `seconds` has ended. Gives a line if a stall was told that is over now.
  std::optional<std::string> Step(std::int64_t step, double seconds, Time now);

  /// No step for so long is a stall.
  std::chrono::duration<double> Limit() const;
  std::chrono::duration<double> Without(Time now) const { return now - since_; }
  bool Stalled(Time now) const { return Without(now) >= Limit(); }
  /// True once: all ranks are to be asked for their status now.
  bool Asks(Time now);
  /// What they have answered, as a line for people, kAnswerTime after Asks.
  std::optional<std::string> Line(std::span<const RankRecord> ranks, Time now);

 private:
  double Median() const;

  std::int64_t round_ = 1;
  Time since_;  // the last step, or the beginning
  std::int64_t step_ = 0;
  std::deque<double> usual_;  // seconds of the last steps
  std::optional<Time> asked_;
  std::optional<std::chrono::duration<double>> told_;  // how long the stall was then
};

}  // namespace adaptive_train
