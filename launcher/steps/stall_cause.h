// Who waits for whom when no step ends, and what that comes down to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/steps/diagnosis.h"

namespace adaptive_train {

/// What nobody's wait explains.
struct StallCause {
  enum class Kind {
    kLink,      // what `peer` has sent has not reached `rank`, which waits for it
    kWorking,   // `rank` waits for nobody
    kSilent,    // `rank` does not say what it is at
    kEachOther  // `rank` and `peer` wait for each other; peer = -1: all ranks do
  };
  Kind kind = Kind::kEachOther;
  int rank = -1, peer = -1;
  std::int64_t bytes = 0;    // of kLink, that have not come
  std::vector<int> waiting;  // other ranks that wait for `rank`, themselves or by others between
};

/// By what all ranks have said of themselves at about the same time; RankRecord::status of those
/// that did not is empty. `ranks` has one element at least.
///
/// Ranks that wait are nodes of a graph with an edge to each rank from which a message is awaited.
/// An edge ends at a link where more messages were sent than received, otherwise at a rank, which
/// may wait itself. Of the ends without an edge of their own, the cause is the one to which most
/// ranks lead.
StallCause FindStallCause(std::span<const RankRecord> ranks);

/// Part of a line: "rank 2 on n3 is computing (micro-batch 3, for 29 s); ranks 0, 1 wait for it".
std::string Describe(const StallCause& cause, std::span<const RankRecord> ranks);

/// "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 more".
std::string NameRanks(std::span<const int> ranks);

}  // namespace adaptive_train
