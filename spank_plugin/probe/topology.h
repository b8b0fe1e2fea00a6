// The node's processors and PCI devices, from hwloc.
#pragma once

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Fills node.processors and node.pci. Cores and threads are those of the whole node, even where
/// this process may not run. Sets HWLOC_PLUGINS_PATH and HWLOC_COMPONENTS of this process.
void ReadTopology(Node& node);

}  // namespace adaptive_train::probe
