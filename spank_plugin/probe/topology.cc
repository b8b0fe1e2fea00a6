#include "spank_plugin/probe/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/cpu_quota.h"
#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)>;

Bitmap MakeBitmap() { return {hwloc_bitmap_alloc(), hwloc_bitmap_free}; }

/// Uses only what the kernel reports: hwloc's plugins would start OpenCL, CUDA, NVML or X, which is
/// slow and may hang.
Topology Load(std::string& error) {
  Topology topology(nullptr, hwloc_topology_destroy);
  ::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
  ::setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    error = "hwloc does not start";
    return topology;
  }
  topology.reset(raw);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) {
    error = std::string("hwloc cannot read the node: ") + std::strerror(errno);
    topology.reset();
  }
  return topology;
}

std::string WidestIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bf16")) return "avx512_bf16";
  if (__builtin_cpu_supports("avx512f")) return "avx512f";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  if (__builtin_cpu_supports("sse4.2")) return "sse4_2";
  return "sse2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "none";
#endif
}

/// Threads on which this process may run: within its cpuset and its affinity.
Bitmap AllowedThreads(hwloc_topology_t topology) {
  Bitmap allowed = MakeBitmap();
  hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(topology));
  Bitmap bound = MakeBitmap();
  if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) == 0)
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  return allowed;
}

std::string ProcessorModel(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model = hwloc_obj_get_info_by_name(
      package != nullptr ? package : hwloc_get_root_obj(topology), "CPUModel");
  return model == nullptr ? "unknown" : model;
}

std::vector<Cache> Caches(hwloc_topology_t topology) {
  std::vector<Cache> caches;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
    const hwloc_obj_t first = hwloc_get_obj_by_type(topology, type, 0);
    if (first == nullptr) continue;
    caches.push_back({static_cast<int>(first->attr->cache.depth),
                      static_cast<std::int64_t>(first->attr->cache.size),
                      hwloc_get_nbobjs_by_type(topology, type)});
  }
  return caches;
}

void FillProcessors(hwloc_topology_t topology, Processors& processors) {
  const auto count = [&](hwloc_obj_type_t type) {
    return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
  };
  processors.model = ProcessorModel(topology);
  processors.isa = WidestIsa();
  processors.packages = count(HWLOC_OBJ_PACKAGE);
  processors.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  processors.cores = count(HWLOC_OBJ_CORE);
  processors.threads = count(HWLOC_OBJ_PU);
  const Bitmap allowed = AllowedThreads(topology);
  processors.allowed_threads = hwloc_bitmap_weight(allowed.get());
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    processors.allowed_cores += hwloc_bitmap_intersects(core->cpuset, allowed.get());
  }
  processors.quota_cpus = ReadCpuQuota();
  processors.caches = Caches(topology);
}

std::string PciAddress(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(pci.domain), pci.bus,
                pci.dev, pci.func);
  return text;
}

/// hwloc's name for the device's class, which is available only within a longer text: "...
/// class=0200(Ethernet) ...".
std::string PciKind(hwloc_obj_t device) {
  char text[256] = "";
  hwloc_obj_attr_snprintf(text, sizeof text, device, " ", 1);
  const std::string all = text;
  const std::size_t open = all.find('(', std::min(all.find("class="), all.size()));
  return open == std::string::npos ? "unknown"
                                   : all.substr(open + 1, all.find(')', open) - open - 1);
}

int NumaNodeOf(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  return near != nullptr && hwloc_bitmap_weight(near->nodeset) == 1
             ? hwloc_bitmap_first(near->nodeset)
             : -1;
}

std::vector<PciDevice> PciDevices(hwloc_topology_t topology) {
  std::vector<PciDevice> devices;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_pcidev(topology, object)) != nullptr;) {
    PciDevice device{PciAddress(object->attr->pcidev), PciKind(object),
                     object->name == nullptr ? "" : object->name, NumaNodeOf(topology, object), ""};
    // A device shares its own bridge's address only through a firmware error; the nearest bridge
    // counts.
    const hwloc_obj_t above = object->parent;
    if (above != nullptr && above->type == HWLOC_OBJ_BRIDGE &&
        above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
      device.parent = PciAddress(above->attr->bridge.upstream.pci);
    }
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

void ReadTopology(Node& node) {
  std::string error;
  const Topology topology = Load(error);
  if (topology == nullptr) {
    node.processors_status.status = error;
    node.pci_status.status = error;
    return;
  }
  FillProcessors(topology.get(), node.processors);
  node.pci = PciDevices(topology.get());
  if (node.pci.empty() && ListFolder("/sys/bus/pci/devices").empty())
    node.pci_status.status = "/sys/bus/pci/devices lists no device";
}

}  // namespace adaptive_train::probe
