// Whether compressing gradients pays on these links: found out by doing both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adaptive_train {

/// What one step took, as the mean over all ranks, so that all ranks see the same bits.
struct GateStep {
  double step_s = 0;
  double exposed_comm_s = 0;  // of it, waiting for the exchange
};

/// First a few dense steps: where the exchange is hidden behind backward there is nothing to gain,
/// and nothing is tried. Otherwise dense and compressed steps in turn, in the order D C C D ..., so
/// that a drift of the machine counts for both, until the rounds agree, kMaxRounds are over, or
/// what has only cost time so far has cost more than kBudget. Compression goes on only if it saved
/// more than kMargin in the median round. Long after, one more trial asks whether that still holds.
/// A value; the same calls lead to the same decisions.
class CompressionGate {
 public:
  static constexpr int kDenseSteps = 3;  // before anything is tried
  static constexpr int kMaxRounds = 6;   // of two dense and two compressed steps
  /// Of a step's time. Less is within what a trial of a few steps can be wrong by.
  static constexpr double kMargin = 0.1;
  static constexpr double kBudget = 2;                 // dense steps that a trial may lose
  static constexpr std::int64_t kStepsBetween = 1000;  // from a decision to the next trial

  /// Whether the next step is to be compressed.
  bool Compress() const;
  bool Deciding() const { return phase_ != Phase::kDecided; }
  /// Takes up an earlier run's decision.
  void Decide(bool compress);

  /// Tells what the step was that Compress() was said of. A step that is not to be counted, because
  /// other work was in it, must not be told. Gives a line for people when a decision is made.
  std::optional<std::string> Took(const GateStep& step);

  /// The saved and decided state: none while the first trial goes on.
  std::optional<bool> Decision() const { return decision_; }

 private:
  enum class Phase { kDense, kTrial, kDecided };

  std::optional<std::string> EndOfDense();
  std::optional<std::string> EndOfRound();
  std::string Decided(bool compress, const std::string& why);

  Phase phase_ = Phase::kDense;
  std::optional<bool> decision_;
  std::vector<GateStep> dense_;
  int place_ = 0;  // in the trial: step 0 is compressed and not counted, it makes buffers
  double round_dense_s_ = 0, round_compressed_s_ = 0;
  double dense_step_s_ = 0;     // before the trial
  double lost_ = 0;             // in it, by compressed steps, in dense ones
  std::vector<double> ratios_;  // compressed / dense, one per round
  std::int64_t steps_since_ = 0;
};

}  // namespace adaptive_train
