// When a run must save and end, so that its state is on disk before the job's time is over.
#pragma once

#include <cstdint>
#include <optional>

#include "core/config.h"

namespace adaptive_train {

/// Decides by what steps and saves of this run took. No I/O.
class SaveBeforeEnd {
 public:
  /// `before` is checkpoint.before_end_seconds: none = as measured, 0 = never.
  explicit SaveBeforeEnd(AutoInt before) : before_(before) {}

  void Step(double seconds);
  void Saved(double seconds);

  /// What is to be done now, `left` seconds before the job's end.
  enum class Act { kNothing, kMeasure, kEnd };
  /// kMeasure, once: nothing was saved in the first half of the time, so a save shows what one takes.
  Act At(std::optional<double> left);

 private:
  double Needed() const;

  const AutoInt before_;
  double step_s_ = 0;  // the longest
  std::optional<double> save_s_;
  std::optional<double> left_at_first_;
  bool measures_ = false, ends_ = false;
};

}  // namespace adaptive_train
