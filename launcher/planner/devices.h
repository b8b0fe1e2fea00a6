// What of the allocated nodes can compute, and how fast that is likely to be.
#pragma once

#include <span>
#include <vector>

#include "core/cluster.h"

namespace adaptive_train {

/// One CPU device a node. `cpus` is what Slurm allocated on each node, 0 = all that the probe
/// found.
std::vector<Device> DevicesOf(std::span<const Node> nodes, std::span<const int> cpus);

/// Relative speed to share work by: the CPUs that the device can really use, its cgroup's quota
/// counted.
double SpeedOf(const Cluster& cluster, const Device& device);

}  // namespace adaptive_train
