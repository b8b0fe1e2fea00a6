// Sums over all ranks that the launcher makes where ranks cannot reach each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace adaptive_train {

/// One round after the other: each rank sends its numbers once, and all get the sums.
class SumRound {
 public:
  explicit SumRound(std::size_t ranks) : sent_(ranks, false) {}

  /// Gives the sums, element by element, when all have sent theirs; the next round then begins.
  /// What a rank sends twice in a round counts once.
  std::optional<std::vector<double>> Add(int rank, const std::vector<double>& numbers) {
    if (sent_[static_cast<std::size_t>(rank)]) return std::nullopt;
    sent_[static_cast<std::size_t>(rank)] = true;
    sums_.resize(std::max(sums_.size(), numbers.size()), 0.0);
    for (std::size_t i = 0; i < numbers.size(); ++i) sums_[i] += numbers[i];
    if (!Missing().empty()) return std::nullopt;
    sent_.assign(sent_.size(), false);
    return std::exchange(sums_, {});
  }

  /// Ranks that have not sent theirs.
  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (std::size_t i = 0; i < sent_.size(); ++i)
      if (!sent_[i]) missing.push_back(static_cast<int>(i));
    return missing;
  }

 private:
  std::vector<bool> sent_;
  std::vector<double> sums_;
};

}  // namespace adaptive_train
