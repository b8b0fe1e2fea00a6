// Reading clusters: what a run saved as cluster.json, or a description by groups of equal nodes.
//
// By groups (docs/formats.md, "Cluster files"):
//   {"format_version": 1, "name": "two-switches",
//    "switches": [{"name": "core"}, {"name": "s1", "parent": "core", "gbit_per_s": 100}],
//    "groups": [{"prefix": "a", "nodes": 4, "switch": "s1", "nic_gbit_per_s": 25, "latency_us": 5,
//                "device": {"kind": "cuda", "model": "A100", "count": 8, "memory_gib": 80,
//                           "tflops": 120, "copy_gb_per_s": 1300},
//                "inside_gb_per_s": 200, "inside_latency_us": 3}],
//    "links": [{"from": "a1", "to": "a2", "gbit_per_s": 1, "latency_us": 50}]}
#include <limits>
#include <map>
#include <set>

#include "core/cluster.h"
#include "core/json_reader.h"
#include "core/limits.h"
#include "core/node_reader.h"

namespace adaptive_train {
namespace {

constexpr char kClusterText[] = "cluster";
constexpr std::int64_t kMaxClusterNodes = 8192;  // the planner has a table of all pairs
constexpr std::size_t kMaxDevices = 262144;
constexpr std::size_t kMaxLinks = std::size_t{1} << 24;
constexpr std::int64_t kMaxMemoryBytes = std::numeric_limits<std::int64_t>::max();
constexpr double kGigabit = 1e9 / 8;
constexpr double kMicro = 1e-6;
constexpr double kGiB = 1 << 30;
constexpr double kMostGib = 1e6, kMostGbit = 1e6;

/// No machine has more in these units; larger numbers would overflow after conversion.
constexpr double kMostNumber = 1e15;

void ReadGiven(const JsonReader& reader, const char* key, double& out, double most = kMostNumber) {
  reader.ReadNumber(key, out, false);
  if (out > most) reader.Refuse(key, fmt::format("more than {:g}", most));
}

double Optional(const JsonReader& reader, const char* key, double otherwise) {
  double value = otherwise;
  if (reader.Has(key)) reader.ReadNumber(key, value);
  if (value > kMostNumber) reader.Refuse(key, fmt::format("more than {:g}", kMostNumber));
  return value;
}

std::string OptionalText(const JsonReader& reader, const char* key) {
  std::string text;
  if (reader.Has(key)) reader.Read(key, text);
  return text;
}

Device ReadDevice(const JsonReader& entry) {
  Device device;
  entry.Read("node", device.node);
  entry.Read("kind", device.kind);
  entry.Read("index", device.index, 0, 1 << 20);
  entry.Read("model", device.model);
  entry.Read("memory_bytes", device.memory_bytes, 0, kMaxMemoryBytes);
  entry.Read("threads", device.threads, 1, 4096);
  device.cpus = Optional(entry, "cpus", 0);
  if (entry.Has("product_flops")) entry.ReadNumber("product_flops", device.product_flops);
  if (entry.Has("copy_bytes_per_second"))
    entry.ReadNumber("copy_bytes_per_second", device.copy_bytes_per_second);
  if (entry.Has("uuid")) entry.Read("uuid", device.uuid);
  device.nccl = OptionalText(entry, "nccl");
  return device;
}

/// Speeds are in our own units, or in Gbit/s and microseconds for people.
void ReadSpeed(const JsonReader& entry, bool needed, double& bytes_per_second, double& latency_s) {
  if (entry.Has("gbit_per_s")) {
    ReadGiven(entry, "gbit_per_s", bytes_per_second);
    bytes_per_second *= kGigabit;
  } else if (needed || entry.Has("bytes_per_second")) {
    entry.ReadNumber("bytes_per_second", bytes_per_second, !needed);
  }
  latency_s = Optional(entry, "latency_s", Optional(entry, "latency_us", 0) * kMicro);
}

Switch ReadSwitch(const JsonReader& entry) {
  Switch one;
  entry.Read("name", one.name);
  one.parent = OptionalText(entry, "parent");
  ReadSpeed(entry, false, one.bytes_per_second, one.latency_s);
  return one;
}

Link ReadLink(const JsonReader& entry) {
  Link link;
  entry.Read("from", link.from);
  entry.Read("to", link.to);
  ReadSpeed(entry, true, link.bytes_per_second, link.latency_s);
  return link;
}

/// A leaf and the switches above it, from the top down; empty if there is no such leaf.
std::vector<std::string> Above(const std::string& leaf, const std::vector<Switch>& switches) {
  std::vector<std::string> path;
  std::string name = leaf;
  while (!name.empty() && path.size() <= switches.size()) {
    const auto found = std::find_if(switches.begin(), switches.end(),
                                    [&](const Switch& one) { return one.name == name; });
    if (found == switches.end()) break;
    path.push_back(name);
    name = found->parent;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

void ReadGroup(const JsonReader& entry, Cluster& cluster) {
  std::string prefix;
  int nodes = 1, count = 1;
  entry.Read("prefix", prefix);
  entry.Read("nodes", nodes, 1, kMaxClusterNodes);
  const std::string leaf = OptionalText(entry, "switch");
  double nic_gbit = 0;
  ReadGiven(entry, "nic_gbit_per_s", nic_gbit, kMostGbit);
  const double latency_us = Optional(entry, "latency_us", 0);
  const double inside = Optional(entry, "inside_gb_per_s", 0) * 1e9;
  const double inside_latency = Optional(entry, "inside_latency_us", 0) * kMicro;
  const auto path = Above(leaf, cluster.switches);
  const JsonReader part = entry.Part("device");
  Device device;
  double memory_gib = 0, tflops = 0;
  part.Read("kind", device.kind);
  part.Read("model", device.model);
  if (part.Has("count")) part.Read("count", count, 1, 1024);
  if (part.Has("threads")) part.Read("threads", device.threads, 1, 4096);
  device.nccl = OptionalText(part, "nccl");
  ReadGiven(part, "memory_gib", memory_gib, kMostGib);
  ReadGiven(part, "tflops", tflops);
  device.copy_bytes_per_second = Optional(part, "copy_gb_per_s", 0) * 1e9;
  if (static_cast<std::int64_t>(cluster.nodes.size()) + nodes > kMaxClusterNodes)
    entry.Refuse("nodes", fmt::format("more than {} in all", kMaxClusterNodes));
  if (cluster.devices.size() + static_cast<std::size_t>(nodes) * static_cast<std::size_t>(count) >
      kMaxDevices)
    entry.Refuse("nodes", fmt::format("more than {} devices in all", kMaxDevices));
  if (!leaf.empty() && path.empty()) entry.Refuse("switch", "not in the list of switches");
  if (!entry.Good()) return;
  device.memory_bytes = static_cast<std::int64_t>(memory_gib * kGiB);
  device.product_flops = tflops * 1e12;
  for (int n = 1; n <= nodes; ++n) {
    Node node;
    node.name = prefix + std::to_string(n);
    node.switches = path;
    node.memory.total_bytes = device.memory_bytes * count;
    node.processors.allowed_threads = device.threads * count;
    node.nics.push_back({.name = "network",
                         .kind = "other",
                         .state = "up",
                         .bits_per_second = static_cast<std::int64_t>(nic_gbit * 1e9),
                         .pci = "",
                         .address = ""});
    device.node = node.name;
    for (int i = 0; i < count; ++i) {
      device.index = i;
      cluster.devices.push_back(device);
    }
    if (inside > 0) cluster.links.push_back({node.name, node.name, inside_latency, inside});
    // The latency of a node's own card is kept for NominalLinks.
    node.nic_latency_s = latency_us * kMicro;
    cluster.nodes.push_back(std::move(node));
  }
}

Result<void> CheckNames(const Cluster& cluster) {
  std::set<std::string> nodes, switches;
  for (const Node& node : cluster.nodes) {
    if (node.name.empty() || !nodes.insert(node.name).second)
      return Fail(
          fmt::format("{}: node name '{}' is empty or stands twice", kClusterText, node.name));
  }
  for (const Switch& one : cluster.switches) {
    if (one.name.empty() || !switches.insert(one.name).second)
      return Fail(
          fmt::format("{}: switch name '{}' is empty or stands twice", kClusterText, one.name));
  }
  for (const Switch& one : cluster.switches) {
    if (!one.parent.empty() && !switches.contains(one.parent))
      return Fail(fmt::format("{}: switch {}: its parent {} is not in the list", kClusterText,
                              one.name, one.parent));
    const auto path = Above(one.name, cluster.switches);
    if (path.size() > cluster.switches.size())
      return Fail(fmt::format("{}: switch {} is above itself", kClusterText, one.name));
  }
  for (const Device& device : cluster.devices) {
    if (!nodes.contains(device.node))
      return Fail(
          fmt::format("{}: a device's node {} is not in the list", kClusterText, device.node));
  }
  for (const Link& link : cluster.links) {
    if (!nodes.contains(link.from) || !nodes.contains(link.to))
      return Fail(fmt::format("{}: link {} to {}: no such node", kClusterText, link.from, link.to));
  }
  if (cluster.devices.empty()) return Fail(fmt::format("{}: it has no device", kClusterText));
  return {};
}

}  // namespace

Result<Cluster> ClusterFromJson(std::string_view text) {
  auto cluster =
      ReadJson<Cluster>(text, kClusterText, [](const nlohmann::json& json) -> Result<Cluster> {
        Cluster read;
        std::string error;
        const JsonReader reader(json, "", error);
        reader.Read("name", read.name);
        const auto add = [](auto& list, auto one) {
          return [&list, one](const JsonReader& entry) { list.push_back(one(entry)); };
        };
        if (reader.Has("switches")) reader.ReadList("switches", add(read.switches, ReadSwitch));
        if (reader.Has("groups")) {
          reader.ReadList("groups", [&](const JsonReader& entry) { ReadGroup(entry, read); });
        } else {
          reader.ReadList("nodes", add(read.nodes, ReadNode), kMaxClusterNodes);
          reader.ReadList("devices", add(read.devices, ReadDevice), kMaxDevices);
        }
        if (reader.Has("links")) reader.ReadList("links", add(read.links, ReadLink), kMaxLinks);
        if (!error.empty()) return Fail(fmt::format("{}: {}", kClusterText, error));
        return read;
      });
  if (!cluster) return cluster;
  if (auto named = CheckNames(*cluster); !named) return tl::unexpected(named.error());
  return cluster;
}

}  // namespace adaptive_train
