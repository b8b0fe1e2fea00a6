// Where a step's time goes.
#pragma once

#include <chrono>

namespace adaptive_train {

/// Starts with the step. The parts add up to the whole: what is in none of them is `other`.
struct StepClock {
  using Steady = std::chrono::steady_clock;
  Steady::time_point begin = Steady::now();
  double compute = 0;
  double exposed_comm = 0;

  /// Adds the time that `work` takes to a part, and gives what it gives.
  template <class Work>
  auto Time(double StepClock::*part, Work work) {
    struct Add {
      StepClock& clock;
      double StepClock::*part;
      Steady::time_point from = Steady::now();
      ~Add() { clock.*part += std::chrono::duration<double>(Steady::now() - from).count(); }
    } add{*this, part};
    return work();
  }
  double Total() const { return std::chrono::duration<double>(Steady::now() - begin).count(); }
};

}  // namespace adaptive_train
