// Whether ranks that have given up their exchange hold the same step's state.
#pragma once

#include <cstdint>

#include "runtime/train/compression_control.h"

namespace adaptive_train {

/// As a failure names it.
inline constexpr const char* kSavingWithoutExchange = "saving without an exchange";

/// What a rank has at that time.
struct OwnState {
  enum class Kind {
    kOfStep,       // all that a checkpoint keeps is of `step`
    kBetween,      // an update is not complete, or the last save is under way
    kWithinRound,  // of local steps: other replicas have other parameters
  };
  Kind kind = Kind::kOfStep;
  std::int64_t step = 0;
};

/// All `ranks` call it together, with a `sum` that does not need the exchange. Blocks for what that
/// takes. Throws FatalError unless all have the state of one step; it names the first rank that has
/// not.
void RequireOneState(int rank, int ranks, const OwnState& own, const SumOfNumbers& sum);

}  // namespace adaptive_train
