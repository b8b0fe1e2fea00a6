#include "runtime/train/state_agreement.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "runtime/fatal_error.h"

namespace adaptive_train {
namespace {

/// In place of a step, in the sum that all ranks see.
constexpr double kBetween = -1, kWithinRound = -2;

double NumberOf(const OwnState& own) {
  switch (own.kind) {
    case OwnState::Kind::kOfStep:
      return static_cast<double>(own.step);
    case OwnState::Kind::kBetween:
      return kBetween;
    case OwnState::Kind::kWithinRound:
      return kWithinRound;
  }
  return kBetween;
}

std::string Describe(std::size_t rank, double number) {
  if (number == kWithinRound) return fmt::format("rank {} is within a round of local steps", rank);
  if (number == kBetween) return fmt::format("rank {} is between two states", rank);
  return fmt::format("rank {} is after step {}", rank, number);
}

}  // namespace

void RequireOneState(int rank, int ranks, const OwnState& own, const SumOfNumbers& sum) {
  std::vector<double> steps(static_cast<std::size_t>(ranks), 0.0);
  steps[static_cast<std::size_t>(rank)] = NumberOf(own);
  sum(steps);
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (steps[r] >= 0 && steps[r] == steps[0]) continue;
    const std::string found = Describe(r, steps[r]);
    throw FatalError(RankExit::kCheckpoint, FailureKind::kUnknown, kSavingWithoutExchange,
                     FatalError::kNoPeer,
                     steps[r] < 0 ? found : Describe(0, steps[0]) + ", " + found);
  }
}

}  // namespace adaptive_train
