#include "core/cluster.h"

#include <algorithm>
#include <limits>

#include "core/json.h"
#include "core/limits.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxText = 1024;
constexpr char kTextRule[] = "not a string of at most 1024 bytes without control characters";
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

Json ToObject(const Node& node) {
  return {{"format_version", kFormatVersion},
          {"name", node.name},
          {"source", node.source},
          {"taken_at", node.taken_at},
          {"probe_seconds", node.probe_seconds},
          {"processors", ToObject(node, node.processors)},
          {"memory",
           {{"status", node.memory_status.status},
            {"total_bytes", node.memory.total_bytes},
            {"available_bytes", node.memory.available_bytes}}},
          {"nics", ToObject(node.nics_status, node.nics)},
          {"pci", ToObject(node.pci_status, node.pci)},
          {"gpus", ToObject(node.gpus_status, node.gpus)}};
}

Json ToObject(const Device& device) {
  return {{"node", device.node},
          {"kind", device.kind},
          {"index", device.index},
          {"model", device.model},
          {"memory_bytes", device.memory_bytes},
          {"threads", device.threads}};
}

/// Names come from kernels and drivers: what is not UTF-8 is replaced, never thrown about.
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool IsText(const nlohmann::json& json) {
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return text.size() <= kMaxText && std::none_of(text.begin(), text.end(), is_control);
}

/// Takes members of an object that nobody vouches for. The first one that is absent or wrong is
/// kept in `error`; after that nothing more is read, so that a caller looks once, at the end.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string where, std::string& error)
      : object_(object), where_(std::move(where)), error_(error) {
    if (error_.empty() && !object_.is_object())
      error_ = (where_.empty() ? "the document" : where_) + ": not an object";
  }

  void Read(const char* key, std::string& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!IsText(*member)) return Refuse(key, kTextRule);
    out = member->get<std::string>();
  }

  template <class Integer>
  void Read(const char* key, Integer& out, std::int64_t smallest, std::int64_t largest) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    // A float or a number beyond 64 bits would be cut silently by get().
    const bool fits =
        member->is_number_integer() &&
        !(member->is_number_unsigned() &&
          member->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    const std::int64_t value = fits ? member->get<std::int64_t>() : 0;
    if (!fits || value < smallest || value > largest)
      return Refuse(key, fmt::format("not a whole number from {} to {}", smallest, largest));
    out = static_cast<Integer>(value);
  }

  void ReadSeconds(const char* key, double& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!member->is_number() || !(member->get<double>() >= 0))
      return Refuse(key, "not a number from 0 up");
    out = member->get<double>();
  }

  /// The member, or nullptr where something is wrong (then `error` says what) or the member is
  /// null.
  const nlohmann::json* FindOptional(const char* key) const {
    const nlohmann::json* member = Find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
  }

  /// Calls read_entry(entry reader) for each entry of a list of objects.
  template <class ReadEntry>
  void ReadList(const char* key, ReadEntry read_entry) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > kMaxEntries)
      return Refuse(key, "not a list of at most 4096 entries");
    for (std::size_t i = 0; i < list->size() && error_.empty(); ++i) {
      read_entry(Reader((*list)[i], fmt::format("{}{}[{}]", Place(), key, i), error_));
    }
  }

  void ReadTexts(const char* key, std::vector<std::string>& out) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > kMaxEntries)
      return Refuse(key, "not a list of at most 4096 strings");
    for (const nlohmann::json& entry : *list) {
      if (!IsText(entry)) return Refuse(key, kTextRule);
      out.push_back(entry.get<std::string>());
    }
  }

  Reader Part(const char* key) const {
    static const nlohmann::json kNothing = nlohmann::json::object();
    const nlohmann::json* part = Find(key);
    return Reader(part != nullptr ? *part : kNothing, where_.empty() ? key : where_ + "." + key,
                  error_);
  }

 private:
  const nlohmann::json* Find(const char* key) const {
    if (!error_.empty()) return nullptr;
    const auto member = object_.find(key);
    if (member != object_.end()) return &*member;
    Refuse(key, "missing");
    return nullptr;
  }

  void Refuse(const char* key, std::string_view what) const {
    error_ = fmt::format("{}{}: {}", Place(), key, what);
  }
  std::string Place() const { return where_.empty() ? "" : where_ + "."; }

  const nlohmann::json& object_;
  std::string where_;
  std::string& error_;
};

void ReadProcessors(const Reader& part, Node& node) {
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
    part.ReadSeconds("quota_cpus", processors.quota_cpus.emplace());
  part.ReadList("caches", [&](const Reader& entry) {
    Cache& cache = processors.caches.emplace_back();
    entry.Read("level", cache.level, 1, 16);
    entry.Read("bytes", cache.bytes, 0, std::numeric_limits<std::int64_t>::max());
    entry.Read("instances", cache.instances, 0, kMaxCount);
  });
}

void ReadNic(const Reader& entry, Nic& nic) {
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

void ReadPciDevice(const Reader& entry, PciDevice& device) {
  entry.Read("address", device.address);
  entry.Read("kind", device.kind);
  entry.Read("name", device.name);
  entry.Read("numa_node", device.numa_node, -1, kMaxCount);
  entry.Read("parent", device.parent);
}

void ReadGpu(const Reader& entry, Gpu& gpu) {
  entry.Read("index", gpu.index, 0, kMaxCount);
  entry.Read("model", gpu.model);
  entry.Read("uuid", gpu.uuid);
  entry.Read("pci", gpu.pci);
  entry.Read("memory_bytes", gpu.memory_bytes, 0, std::numeric_limits<std::int64_t>::max());
  entry.Read("numa_node", gpu.numa_node, -1, kMaxCount);
  entry.ReadTexts("nvlink_peers", gpu.nvlink_peers);
}

void ReadNode(const Reader& reader, Node& node) {
  reader.Read("name", node.name);
  reader.Read("source", node.source);
  reader.Read("taken_at", node.taken_at);
  reader.ReadSeconds("probe_seconds", node.probe_seconds);
  ReadProcessors(reader.Part("processors"), node);
  const Reader memory = reader.Part("memory");
  memory.Read("status", node.memory_status.status);
  memory.Read("total_bytes", node.memory.total_bytes, 0, std::numeric_limits<std::int64_t>::max());
  memory.Read("available_bytes", node.memory.available_bytes, 0,
              std::numeric_limits<std::int64_t>::max());
  const Reader nics = reader.Part("nics");
  nics.Read("status", node.nics_status.status);
  nics.ReadList("list", [&](const Reader& entry) { ReadNic(entry, node.nics.emplace_back()); });
  const Reader pci = reader.Part("pci");
  pci.Read("status", node.pci_status.status);
  pci.ReadList("list", [&](const Reader& entry) { ReadPciDevice(entry, node.pci.emplace_back()); });
  const Reader gpus = reader.Part("gpus");
  gpus.Read("status", node.gpus_status.status);
  gpus.ReadList("list", [&](const Reader& entry) { ReadGpu(entry, node.gpus.emplace_back()); });
}

}  // namespace

std::string ToJson(const Node& node) { return Text(ToObject(node), -1); }

Result<Node> NodeFromJson(std::string_view text) {
  constexpr char kWhat[] = "node snapshot";
  if (text.size() > kMaxSnapshotBytes)
    return Fail(fmt::format("{}: {} bytes long; at most {} are read", kWhat, text.size(),
                            kMaxSnapshotBytes));
  return ReadJson<Node>(text, kWhat, [&](const nlohmann::json& json) -> Result<Node> {
    Node node;
    std::string error;
    ReadNode(Reader(json, "", error), node);
    if (!error.empty()) return Fail(fmt::format("{}: {}", kWhat, error));
    return node;
  });
}

std::string ToJson(const Cluster& cluster) {
  Json nodes = Json::array();
  for (const Node& node : cluster.nodes) nodes.push_back(ToObject(node));
  Json devices = Json::array();
  for (const Device& device : cluster.devices) devices.push_back(ToObject(device));
  const Json json = {{"format_version", kFormatVersion},
                     {"name", cluster.name},
                     {"nodes", nodes},
                     {"devices", devices}};
  return Text(json, 2) + "\n";
}

}  // namespace adaptive_train
