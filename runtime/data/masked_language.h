// BERT's objective: which tokens of a sample are hidden, and what replaces them.
#pragma once

#include <cstdint>
#include <span>

#include "core/counter_random.h"

namespace adaptive_train {

/// Masked language modelling as in Devlin et al. 2019. 15 % of a sample's tokens are predicted,
/// chosen without replacement. Of those 80 % become the mask token, 10 % a random other token, and
/// 10 % stay. The mask token is the vocabulary's last; a text must not use it. Every sample has the
/// same number of targets, so the mean over a global batch does not depend on how it is split. A
/// value; any thread.
class MaskedLanguage {
 public:
  /// sequence >= 1, vocab >= 2.
  MaskedLanguage(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed);

  /// Targets of a sample: 15 % of its tokens, rounded, at least 1.
  std::int64_t targets_per_sample() const { return targets_; }
  std::int32_t mask_token() const { return static_cast<std::int32_t>(vocab_ - 1); }

  /// Hides tokens in place and sets targets: the hidden token where one is predicted, -1 elsewhere.
  /// Both spans hold `sequence` tokens. The choice follows from the seed and (round, sample) alone.
  /// For training pass the step and the sample's number in its global batch; for validation use
  /// separate rounds.
  void Hide(std::uint32_t round, std::uint32_t sample, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;

 private:
  std::int32_t Replacement(const RandomPlace& place, std::int32_t token) const;

  std::int64_t sequence_, vocab_, targets_;
  CounterRandom random_;
};

}  // namespace adaptive_train
