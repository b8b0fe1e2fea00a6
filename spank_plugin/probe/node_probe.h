// Takes a snapshot of this node: processors, memory, network cards, PCI devices, GPUs.
#pragma once

#include <functional>

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Takes a snapshot of this process's node. Never fails: a missing part has a status that says why.
/// Blocks for tens of milliseconds, and then for as long as NVML does, possibly forever.
/// `on_cpu_part` is called once, before GPUs are touched, with everything else (gpus_status says
/// "not asked yet"). Sets HWLOC_* variables of this process; call it from one thread, before others
/// are started.
Node TakeSnapshot(const std::function<void(const Node&)>& on_cpu_part);

}  // namespace adaptive_train::probe
