// Measures every link of an order, and each node's own speed: the body of a measuring rank.
#pragma once

#include "core/measure_order.h"
#include "core/profile.h"
#include "runtime/comm/communicator.h"

namespace adaptive_train {

/// Does the order's rounds in step with all other ranks, which must call this with the same order;
/// rank i stands on order.nodes[i]. A round measures disjoint pairs: latency (link_ping.h), then
/// bandwidth in one direction after the other (link_stream.h): both at once hold up each other's
/// grants. A pair whose bandwidth wavers is measured once more; if it still does, its spread tells.
/// Gives the whole profile
/// on rank 0, an empty one elsewhere. Blocks; every wait has a deadline. Throws FatalError with the
/// pair and the operation when a peer is lost or a deadline missed.
Profile MeasureNodes(const MeasureOrder& order, Communicator& communicator);

}  // namespace adaptive_train
