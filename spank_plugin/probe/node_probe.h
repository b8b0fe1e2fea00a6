// Photographs this node: processors, memory, network cards, PCI devices, GPUs.
#pragma once

#include <functional>

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Takes a picture of the node that this process runs on. Never fails: a part that cannot be had
/// has a status that says why. Blocks for tens of milliseconds, and then for as long as NVML takes,
/// which may be forever. `on_cpu_part` is called once, before GPUs are touched, with everything
/// else (gpus_status says "not asked yet"). Sets HWLOC_* variables of this process; call it from
/// one thread, before others are started.
Node TakeSnapshot(const std::function<void(const Node&)>& on_cpu_part);

}  // namespace adaptive_train::probe
