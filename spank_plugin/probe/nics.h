// The node's network cards, including RDMA devices.
#pragma once

#include <string>

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Fills node.nics from ROOT/sys/class/net (all but loopback) and ROOT/sys/class/infiniband.
/// Addresses are those of this network namespace.
void ReadNics(Node& node, const std::string& root = "");

}  // namespace adaptive_train::probe
