// Measures every link of an order, and each node's own speed, on a measuring rank.
#pragma once

#include <string>

#include "core/measure_order.h"
#include "core/profile.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// On rank 0; empty elsewhere.
struct NodeFigures {
  Profile profile;
  std::string congestion;  // a line for people if pairs of a round were held up
};

/// Runs the order's rounds in step with all other ranks, which must call this with the same order.
/// Rank i is on order.nodes[i]. A round measures disjoint pairs: latency (link_ping.h), then
/// bandwidth in one direction after the other (link_stream.h), since both at once would delay each
/// other's grants.
///
/// A direction is measured again if its rate varies, or is below that of the other direction. If it
/// still varies, its spread says so. A direction far below what its ends can do (congestion.h) is
/// measured alone. If it is faster then, its round is repeated: there was other traffic, or the
/// round's pairs share something. The profile keeps what pairs reach together, since a run's
/// exchange uses them all at once.
///
/// Blocks; every wait has a deadline. Throws FatalError with the pair and the operation if a peer
/// is lost or a deadline missed.
NodeFigures MeasureNodes(const MeasureOrder& order, Group& group);

}  // namespace adaptive_train
