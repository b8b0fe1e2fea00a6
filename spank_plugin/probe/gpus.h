// The node's NVIDIA GPUs.
#pragma once

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Fills node.gpus from NVML, and their NUMA nodes from /sys. A GPU that cannot be queried is left
/// out and named in node.gpus_status. Blocks for as long as the driver does.
void ReadGpus(Node& node);

}  // namespace adaptive_train::probe
