#include "launcher/planner/devices.h"

#include <algorithm>

namespace adaptive_train {

std::vector<Device> DevicesOf(std::span<const Node> nodes, std::span<const int> cpus) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    Device device;
    device.node = node.name;
    device.kind = "cpu";
    device.model = node.processors.model;
    device.memory_bytes = node.memory.total_bytes;
    device.threads = std::max(1, node.processors.allowed_threads);
    if (i < cpus.size() && cpus[i] > 0) device.threads = std::min(device.threads, cpus[i]);
    devices.push_back(device);
  }
  return devices;
}

double SpeedOf(const Cluster& cluster, const Device& device) {
  double speed = device.threads;
  for (const Node& node : cluster.nodes) {
    if (node.name == device.node && node.processors.quota_cpus)
      speed = std::min(speed, *node.processors.quota_cpus);
  }
  return std::max(speed, 1e-3);
}

}  // namespace adaptive_train
