#include "launcher/planner/groups.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace adaptive_train {
namespace {

std::vector<std::vector<int>> DevicesOfNodes(const SearchTables& tables) {
  std::vector<std::vector<int>> on_node(tables.Problem().links.Nodes());
  for (std::size_t i = 0; i < tables.Problem().devices.size(); ++i)
    on_node[static_cast<std::size_t>(tables.Problem().devices[i].node)].push_back(
        static_cast<int>(i));
  return on_node;
}

bool Alike(const SearchTables& tables, int a, int b) {
  return tables.ClassOf(a) == tables.ClassOf(b) && tables.MemoryLimit(a) == tables.MemoryLimit(b);
}

/// Moves whole groups of equal devices to the front; `devices` must have equal ones adjacent.
void EqualGroupsFirst(const SearchTables& tables, std::vector<int>& devices, std::size_t size) {
  std::vector<int> whole, rest;
  for (std::size_t first = 0, end = 0; first < devices.size(); first = end) {
    while (end < devices.size() && Alike(tables, devices[first], devices[end])) ++end;
    const std::size_t bundled = (end - first) / size * size;
    for (std::size_t i = first; i < end; ++i)
      (i - first < bundled ? whole : rest).push_back(devices[i]);
  }
  devices = std::move(whole);
  devices.insert(devices.end(), rest.begin(), rest.end());
}

void Order(const SearchTables& tables, Bundling bundling, std::size_t size,
           std::vector<int>& devices) {
  const auto key = [&](int device) {
    const double slow = tables.Slowness(tables.ClassOf(device));
    const double memory = -tables.MemoryLimit(device);
    const int known = tables.ClassOf(device);
    return bundling == Bundling::kMemory ? std::tuple{memory, slow, known}
                                         : std::tuple{slow, memory, known};
  };
  std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) { return key(a) < key(b); });
  if (bundling == Bundling::kAlike) EqualGroupsFirst(tables, devices, size);
}

Group GroupOf(const SearchTables& tables, int node, std::vector<int> devices) {
  Group group;
  group.node = node;
  group.device_class = tables.ClassOf(devices.front());
  group.limit = tables.MemoryLimit(devices.front());
  for (int device : devices) {
    const int known = tables.ClassOf(device);
    if (tables.Slowness(known) > tables.Slowness(group.device_class)) group.device_class = known;
    group.limit = std::min(group.limit, tables.MemoryLimit(device));
  }
  group.slowness = tables.Slowness(group.device_class);
  group.devices = std::move(devices);
  return group;
}

}  // namespace

std::vector<Group> MakeGroups(const SearchTables& tables, int tensor, Bundling bundling) {
  std::vector<Group> groups;
  const auto size = static_cast<std::size_t>(tensor);
  auto on_node = DevicesOfNodes(tables);
  for (std::size_t node = 0; node < on_node.size(); ++node) {
    std::vector<int>& devices = on_node[node];
    if (size > 1) Order(tables, bundling, size, devices);
    for (auto first = devices.begin(); devices.end() - first >= tensor; first += tensor)
      groups.push_back(GroupOf(tables, static_cast<int>(node), {first, first + tensor}));
  }
  return groups;
}

std::vector<std::vector<Group>> AllBundlings(const SearchTables& tables, int tensor) {
  std::vector<std::vector<Group>> all;
  for (Bundling bundling : {Bundling::kSpeed, Bundling::kMemory, Bundling::kAlike}) {
    auto groups = MakeGroups(tables, tensor, bundling);
    const auto same = [&](const std::vector<Group>& known) {
      return std::equal(known.begin(), known.end(), groups.begin(), groups.end(),
                        [](const Group& a, const Group& b) {
                          return a.device_class == b.device_class && a.limit == b.limit;
                        });
    };
    if (!groups.empty() && std::none_of(all.begin(), all.end(), same))
      all.push_back(std::move(groups));
  }
  return all;
}

std::vector<Group> IdealGroups(const SearchTables& tables, int tensor) {
  auto groups = MakeGroups(tables, tensor);
  if (tensor == 1) return groups;
  const auto on_node = DevicesOfNodes(tables);
  for (Group& group : groups) {
    std::vector<double> limits;
    for (int device : on_node[static_cast<std::size_t>(group.node)])
      limits.push_back(tables.MemoryLimit(device));
    const auto last = limits.begin() + (tensor - 1);
    std::nth_element(limits.begin(), last, limits.end(), std::greater<>());
    group.limit = *last;
  }
  return groups;
}

}  // namespace adaptive_train
