// How many steps apart copies of the state are, by what they are measured to cost.
#pragma once

#include <cstdint>

namespace adaptive_train {

/// Copies take at most this share of the steps' time.
inline constexpr double kMostCopyShare = 0.03;

/// Seconds, on average since the last decision.
struct CopyCosts {
  double copy_s = 0;
  double step_s = 0;  // of a step without a copy
};

/// The same on all ranks where they are told the same costs. A value.
class CopyInterval {
 public:
  /// `fixed` steps apart, the first after one step; 0: measured. The first copies are then made in
  /// every step and measured, unless the very first one takes long: it decides by itself.
  explicit CopyInterval(std::int64_t fixed) : fixed_(fixed) {}

  /// After each step: its seconds without a copy. True: a copy is due now.
  bool AfterStep(double seconds);
  /// A copy was made. True: a decision is due, on all ranks at once.
  bool AfterCopy(double seconds);
  /// This rank's.
  CopyCosts Costs() const;
  /// By the largest costs of all ranks. True: every() is another now, or was decided for the first
  /// time. False after a first copy that tells too little.
  bool Decide(const CopyCosts& largest);

  std::int64_t every() const { return fixed_ > 0 ? fixed_ : every_; }

 private:
  void CountAnew();

  std::int64_t fixed_;
  std::int64_t every_ = 1;
  bool decided_ = false;
  std::int64_t since_copy_ = 0;  // steps
  std::int64_t copies_ = 0, next_decision_ = 6;
  std::int64_t counted_copies_ = 0, counted_steps_ = 0;  // since the last decision
  double copies_s_ = 0, steps_s_ = 0;
};

}  // namespace adaptive_train
