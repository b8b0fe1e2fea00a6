// Sums of a few numbers over all ranks, as the training loop uses them.
#pragma once

#include <chrono>
#include <span>

#include "runtime/comm/group.h"
#include "runtime/fatal_error.h"

namespace adaptive_train {

/// A collective ends at the pace of the slowest rank, whose step may take long; ranks that are gone
/// are found out by the control channel within seconds.
inline constexpr std::chrono::minutes kCollectiveDeadline{15};

inline Deadline CollectiveDeadline() { return RunningClock::now() + kCollectiveDeadline; }

/// Throws FatalError if the communication failed.
inline void Await(const tl::expected<void, CommError>& outcome) {
  if (!outcome) {
    throw FatalError(RankExit::kTransport, outcome.error().operation, outcome.error().peer,
                     outcome.error().cause);
  }
}

/// numbers[i] becomes the sum over all ranks. Blocks.
inline void SumOverRanks(Group& group, std::span<double> numbers) {
  Await(group.AllReduce(Purpose::kStatistic, numbers).Wait(CollectiveDeadline()));
}

}  // namespace adaptive_train
