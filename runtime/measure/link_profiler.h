// Measures every link of an order, and each node's own speed: the body of a measuring rank.
#pragma once

#include <string>

#include "core/measure_order.h"
#include "core/profile.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// On rank 0; empty elsewhere.
struct NodeFigures {
  Profile profile;
  std::string congestion;  // a line for people where pairs of a round were held up
};

/// Does the order's rounds in step with all other ranks, which must call this with the same order;
/// rank i stands on order.nodes[i]. A round measures disjoint pairs: latency (link_ping.h), then
/// bandwidth in one direction after the other (link_stream.h): both at once hold up each other's
/// grants. A direction whose rate wavers, or is below that of the other way, is measured once more;
/// if it still wavers, its spread tells.
/// A direction that falls far short of what its ends can do (congestion.h) is measured with nothing
/// beside it, and, if it gains by that, its round once more: either something else was on the way,
/// or the round's pairs share something. The profile keeps what pairs do together, as a run's
/// exchange uses them all at once. Blocks; every wait has a deadline. Throws FatalError with the
/// pair and the operation when a peer is lost or a deadline missed.
NodeFigures MeasureNodes(const MeasureOrder& order, Group& group);

}  // namespace adaptive_train
