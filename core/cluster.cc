#include "core/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/json.h"
#include "core/json_reader.h"
#include "core/limits.h"
#include "core/node_reader.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxCount = 1 << 20;

Json ToObject(const Node& node, const Processors& processors) {
  Json caches = Json::array();
  for (const Cache& cache : processors.caches) {
    caches.push_back(
        {{"level", cache.level}, {"bytes", cache.bytes}, {"instances", cache.instances}});
  }
  return {{"status", node.processors_status.status},
          {"model", processors.model},
          {"isa", processors.isa},
          {"packages", processors.packages},
          {"numa_nodes", processors.numa_nodes},
          {"cores", processors.cores},
          {"threads", processors.threads},
          {"allowed_cores", processors.allowed_cores},
          {"allowed_threads", processors.allowed_threads},
          {"quota_cpus", processors.quota_cpus ? Json(*processors.quota_cpus) : Json(nullptr)},
          {"caches", caches}};
}

Json ToObject(const Nic& nic) {
  return {{"name", nic.name},
          {"kind", nic.kind},
          {"state", nic.state},
          {"bits_per_second", nic.bits_per_second ? Json(*nic.bits_per_second) : Json(nullptr)},
          {"pci", nic.pci},
          {"address", nic.address}};
}

Json ToObject(const PciDevice& device) {
  return {{"address", device.address},
          {"kind", device.kind},
          {"name", device.name},
          {"numa_node", device.numa_node},
          {"parent", device.parent}};
}

Json ToObject(const Gpu& gpu) {
  return {{"index", gpu.index},
          {"model", gpu.model},
          {"uuid", gpu.uuid},
          {"pci", gpu.pci},
          {"memory_bytes", gpu.memory_bytes},
          {"numa_node", gpu.numa_node},
          {"nvlink_peers", gpu.nvlink_peers}};
}

template <class Entry>
Json ToObject(const PartStatus& status, const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) list.push_back(ToObject(entry));
  return {{"status", status.status}, {"list", list}};
}

Json ToObject(const Memory& memory, const PartStatus& status) {
  Json limits = Json::array();
  for (const MemoryLimit& limit : memory.limits)
    limits.push_back({{"bytes", limit.bytes}, {"by", limit.by}});
  return {{"status", status.status},
          {"total_bytes", memory.total_bytes},
          {"available_bytes", memory.available_bytes},
          {"limits", limits}};
}

Json ToObject(const Node& node) {
  return {{"format_version", kFormatVersion},
          {"name", node.name},
          {"source", node.source},
          {"taken_at", node.taken_at},
          {"probe_seconds", node.probe_seconds},
          {"nic_latency_s", node.nic_latency_s},
          {"switches", node.switches},
          {"processors", ToObject(node, node.processors)},
          {"memory", ToObject(node.memory, node.memory_status)},
          {"nics", ToObject(node.nics_status, node.nics)},
          {"pci", ToObject(node.pci_status, node.pci)},
          {"gpus", ToObject(node.gpus_status, node.gpus)}};
}

Json ToObject(const Device& device) {
  Json object{{"node", device.node},
              {"kind", device.kind},
              {"index", device.index},
              {"model", device.model},
              {"memory_bytes", device.memory_bytes},
              {"threads", device.threads},
              {"cpus", device.cpus},
              {"product_flops", device.product_flops},
              {"copy_bytes_per_second", device.copy_bytes_per_second}};
  if (!device.uuid.empty()) object["uuid"] = device.uuid;
  if (!device.nccl.empty()) object["nccl"] = device.nccl;
  return object;
}

Json ToObject(const Switch& network_switch) {
  return {{"name", network_switch.name},
          {"parent", network_switch.parent},
          {"bytes_per_second", network_switch.bytes_per_second},
          {"latency_s", network_switch.latency_s}};
}

Json ToObject(const Link& link) {
  return {{"from", link.from},
          {"to", link.to},
          {"latency_s", link.latency_s},
          {"bytes_per_second", link.bytes_per_second}};
}

/// Names come from kernels and drivers, so invalid UTF-8 is replaced instead of throwing.
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void ReadProcessors(const JsonReader& part, Node& node) {
  Processors& processors = node.processors;
  part.Read("status", node.processors_status.status);
  part.Read("model", processors.model);
  part.Read("isa", processors.isa);
  part.Read("packages", processors.packages, 0, kMaxCount);
  part.Read("numa_nodes", processors.numa_nodes, 0, kMaxCount);
  part.Read("cores", processors.cores, 0, kMaxCount);
  part.Read("threads", processors.threads, 0, kMaxCount);
  part.Read("allowed_cores", processors.allowed_cores, 0, kMaxCount);
  part.Read("allowed_threads", processors.allowed_threads, 0, kMaxCount);
  if (part.FindOptional("quota_cpus") != nullptr)
    part.ReadNumber("quota_cpus", processors.quota_cpus.emplace());
  part.ReadList("caches", [&](const JsonReader& entry) {
    Cache& cache = processors.caches.emplace_back();
    entry.Read("level", cache.level, 1, 16);
    entry.Read("bytes", cache.bytes, 0, std::numeric_limits<std::int64_t>::max());
    entry.Read("instances", cache.instances, 0, kMaxCount);
  });
}

void ReadNic(const JsonReader& entry, Nic& nic) {
  entry.Read("name", nic.name);
  entry.Read("kind", nic.kind);
  entry.Read("state", nic.state);
  if (entry.FindOptional("bits_per_second") != nullptr) {
    entry.Read("bits_per_second", nic.bits_per_second.emplace(), 0,
               std::numeric_limits<std::int64_t>::max());
  }
  entry.Read("pci", nic.pci);
  entry.Read("address", nic.address);
}

void ReadPciDevice(const JsonReader& entry, PciDevice& device) {
  entry.Read("address", device.address);
  entry.Read("kind", device.kind);
  entry.Read("name", device.name);
  entry.Read("numa_node", device.numa_node, -1, kMaxCount);
  entry.Read("parent", device.parent);
}

void ReadGpu(const JsonReader& entry, Gpu& gpu) {
  entry.Read("index", gpu.index, 0, kMaxCount);
  entry.Read("model", gpu.model);
  entry.Read("uuid", gpu.uuid);
  entry.Read("pci", gpu.pci);
  entry.Read("memory_bytes", gpu.memory_bytes, 0, std::numeric_limits<std::int64_t>::max());
  entry.Read("numa_node", gpu.numa_node, -1, kMaxCount);
  entry.ReadTexts("nvlink_peers", gpu.nvlink_peers);
}

}  // namespace

MemoryLimit UsableMemory(const Memory& memory) {
  MemoryLimit least{memory.total_bytes, ""};
  const auto reduce = [&least](std::int64_t bytes, const std::string& by) {
    if (bytes > 0 && (least.bytes == 0 || bytes < least.bytes)) least = {bytes, by};
  };
  for (const MemoryLimit& limit : memory.limits) reduce(limit.bytes, limit.by);
  const std::int64_t step = std::max<std::int64_t>(1, memory.total_bytes / 64);
  reduce(memory.available_bytes / step * step, "what is free");
  return least;
}

std::string DescribeMemory(const Memory& memory) {
  constexpr double kGiB = 1 << 30;
  const MemoryLimit usable = UsableMemory(memory);
  const auto total = static_cast<double>(memory.total_bytes) / kGiB;
  if (usable.by.empty()) return fmt::format("{:.1f} GiB", total);
  return fmt::format("{:.1f} GiB of {:.1f} GiB: {}", static_cast<double>(usable.bytes) / kGiB,
                     total, usable.by);
}

Node ReadNode(const JsonReader& reader) {
  Node node;
  reader.Read("name", node.name);
  reader.Read("source", node.source);
  reader.Read("taken_at", node.taken_at);
  reader.ReadNumber("probe_seconds", node.probe_seconds);
  // Snapshots of probes have no network.
  if (reader.Has("switches")) reader.ReadTexts("switches", node.switches);
  if (reader.Has("nic_latency_s")) reader.ReadNumber("nic_latency_s", node.nic_latency_s);
  ReadProcessors(reader.Part("processors"), node);
  const JsonReader memory = reader.Part("memory");
  memory.Read("status", node.memory_status.status);
  memory.Read("total_bytes", node.memory.total_bytes, 0, std::numeric_limits<std::int64_t>::max());
  memory.Read("available_bytes", node.memory.available_bytes, 0,
              std::numeric_limits<std::int64_t>::max());
  // Earlier versions wrote no limits.
  if (memory.Has("limits")) {
    memory.ReadList("limits", [&](const JsonReader& entry) {
      MemoryLimit& limit = node.memory.limits.emplace_back();
      entry.Read("bytes", limit.bytes, 1, std::numeric_limits<std::int64_t>::max());
      entry.Read("by", limit.by);
    });
  }
  const JsonReader nics = reader.Part("nics");
  nics.Read("status", node.nics_status.status);
  nics.ReadList("list", [&](const JsonReader& entry) { ReadNic(entry, node.nics.emplace_back()); });
  const JsonReader pci = reader.Part("pci");
  pci.Read("status", node.pci_status.status);
  pci.ReadList("list",
               [&](const JsonReader& entry) { ReadPciDevice(entry, node.pci.emplace_back()); });
  const JsonReader gpus = reader.Part("gpus");
  gpus.Read("status", node.gpus_status.status);
  gpus.ReadList("list", [&](const JsonReader& entry) { ReadGpu(entry, node.gpus.emplace_back()); });
  return node;
}

std::string ToJson(const Node& node) { return Text(ToObject(node), -1); }

Result<Node> NodeFromJson(std::string_view text) {
  constexpr char kWhat[] = "node snapshot";
  if (text.size() > kMaxSnapshotBytes)
    return Fail(fmt::format("{}: {} bytes long; at most {} are read", kWhat, text.size(),
                            kMaxSnapshotBytes));
  return ReadJson<Node>(text, kWhat, [&](const nlohmann::json& json) -> Result<Node> {
    std::string error;
    Node node = ReadNode(JsonReader(json, "", error));
    if (!error.empty()) return Fail(fmt::format("{}: {}", kWhat, error));
    return node;
  });
}

std::string ToJson(const Cluster& cluster) {
  const auto objects = [](const auto& entries) {
    Json list = Json::array();
    for (const auto& entry : entries) list.push_back(ToObject(entry));
    return list;
  };
  const Json json = {{"format_version", kFormatVersion},      {"name", cluster.name},
                     {"nodes", objects(cluster.nodes)},       {"devices", objects(cluster.devices)},
                     {"switches", objects(cluster.switches)}, {"links", objects(cluster.links)}};
  return Text(json, 2) + "\n";
}

}  // namespace adaptive_train
