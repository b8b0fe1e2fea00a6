#include "launcher/planner/groups.h"

#include <algorithm>

namespace adaptive_train {

std::vector<Group> MakeGroups(const SearchTables& tables, int tensor) {
  std::vector<std::vector<int>> on_node(tables.Problem().links.Nodes());
  for (std::size_t i = 0; i < tables.Problem().devices.size(); ++i)
    on_node[static_cast<std::size_t>(tables.Problem().devices[i].node)].push_back(
        static_cast<int>(i));
  std::vector<Group> groups;
  const auto size = static_cast<std::size_t>(tensor);
  for (std::size_t node = 0; node < on_node.size(); ++node) {
    auto& devices = on_node[node];
    if (size > 1) {
      std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) {
        const double slow_a = tables.Slowness(tables.ClassOf(a));
        const double slow_b = tables.Slowness(tables.ClassOf(b));
        return slow_a != slow_b ? slow_a < slow_b : tables.MemoryLimit(a) > tables.MemoryLimit(b);
      });
    }
    for (std::size_t first = 0; first + size <= devices.size(); first += size) {
      Group group;
      group.node = static_cast<int>(node);
      group.devices.assign(devices.begin() + static_cast<std::ptrdiff_t>(first),
                           devices.begin() + static_cast<std::ptrdiff_t>(first + size));
      const int last = group.devices.back();
      group.device_class = tables.ClassOf(last);
      group.slowness = tables.Slowness(group.device_class);
      group.limit = tables.MemoryLimit(last);
      for (int device : group.devices)
        group.limit = std::min(group.limit, tables.MemoryLimit(device));
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace adaptive_train
