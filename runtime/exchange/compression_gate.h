// Decides by trying both whether compressing gradients pays on these links.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adaptive_train {

/// The times of one step, as means over all ranks, so that all ranks see the same bits.
struct GateStep {
  double step_s = 0;
  double exposed_comm_s = 0;  // part of it: waiting for the exchange
};

/// Starts with a few dense steps: if backward hides the exchange, there is nothing to gain and
/// nothing is tried. Otherwise dense and compressed steps alternate in the order D C C D ..., so
/// that a drift of the machine affects both. The trial ends when the rounds agree, after
/// kMaxRounds, or when compression has cost more than kBudget so far. Compression continues only if
/// it saved more than kMargin in the median round. Much later another trial checks whether that
/// still holds. A value; the same calls lead to the same decisions.
class CompressionGate {
 public:
  static constexpr int kDenseSteps = 3;  // before anything is tried
  static constexpr int kMaxRounds = 6;   // of two dense and two compressed steps
  /// Of a step's time. A trial of a few steps cannot measure less reliably.
  static constexpr double kMargin = 0.1;
  static constexpr double kBudget = 2;                 // dense steps that a trial may lose
  static constexpr std::int64_t kStepsBetween = 1000;  // between a decision and the next trial

  /// Whether the next step is to be compressed.
  bool Compress() const;
  bool Deciding() const { return phase_ != Phase::kDecided; }
  /// Takes over an earlier run's decision.
  void Decide(bool compress);

  /// Reports the step that Compress() decided. A step that includes other work must not be
  /// reported. Returns a line for people when a decision is made.
  std::optional<std::string> Took(const GateStep& step);

  /// The decision to save; none during the first trial.
  std::optional<bool> Decision() const { return decision_; }

 private:
  enum class Phase { kDense, kTrial, kDecided };

  std::optional<std::string> EndOfDense();
  std::optional<std::string> EndOfRound();
  std::string Decided(bool compress, const std::string& why);

  Phase phase_ = Phase::kDense;
  std::optional<bool> decision_;
  std::vector<GateStep> dense_;
  int place_ = 0;  // in the trial; step 0 is compressed but not counted, as it allocates
  double round_dense_s_ = 0, round_compressed_s_ = 0;
  double dense_step_s_ = 0;     // before the trial
  double lost_ = 0;             // by compressed steps of the trial, in dense steps
  std::vector<double> ratios_;  // compressed / dense, one per round
  std::int64_t steps_since_ = 0;
};

}  // namespace adaptive_train
