// A cluster: nodes with processors, memory, network cards and GPUs, as the probe found them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// A part of a snapshot that may be absent: `status` is "ok" or says why the part is missing.
struct PartStatus {
  std::string status = "ok";
  bool Ok() const { return status == "ok"; }
  bool operator==(const PartStatus&) const = default;
};

struct Cache {
  int level = 0;           // 1, 2, 3
  std::int64_t bytes = 0;  // of one instance
  int instances = 0;
  bool operator==(const Cache&) const = default;
};

struct Processors {
  std::string model;  // "AMD EPYC 9354"
  std::string isa;  // widest vector extension usable: avx512_bf16, avx512f, avx2, sse4_2, neon, ...
  int packages = 0;
  int numa_nodes = 0;
  int cores = 0;    // physical cores of the node
  int threads = 0;  // hardware threads of the node
  int allowed_cores =
      0;  // physical cores with at least one thread this process may run on (cpuset, affinity)
  int allowed_threads = 0;           // hardware threads this process may run on
  std::optional<double> quota_cpus;  // CPU-bandwidth limit of the cgroup in CPUs; none = unlimited
  std::vector<Cache> caches;
  bool operator==(const Processors&) const = default;
};

/// A limit on memory below the node's own, with its origin.
struct MemoryLimit {
  std::int64_t bytes = 0;
  std::string by;  // "the job's --mem", "control group /job_7", "what is free"; empty: none
  bool operator==(const MemoryLimit&) const = default;
};

struct Memory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;  // at the time of the snapshot; 0: unknown
  std::vector<MemoryLimit> limits;   // of the job that took the snapshot; a prolog's has none
  bool operator==(const Memory&) const = default;
};

/// The memory that a job may use, and which limit applies: the least of the node's memory, the free
/// memory and the limits. Free memory is rounded to a 64th of the node's memory, so that equal
/// nodes stay equal.
MemoryLimit UsableMemory(const Memory& memory);
/// "8.0 GiB of 64.0 GiB: the job's --mem", or "64.0 GiB" without a limit.
std::string DescribeMemory(const Memory& memory);

struct Nic {
  std::string name;                             // eth0, ib0, mlx5_0
  std::string kind;                             // ethernet, infiniband, other
  std::string state;                            // up, down, unknown
  std::optional<std::int64_t> bits_per_second;  // none: unknown to the driver
  std::string pci;                              // 0000:3b:00.0 or empty
  std::string address;  // first IPv4, or IPv6 if that is all there is; may be empty
  bool operator==(const Nic&) const = default;
};

struct PciDevice {
  std::string address;  // 0000:3b:00.0
  std::string kind;     // hwloc's class name: VGA, Ethernet, NVMExp, ...
  std::string name;
  int numa_node = -1;
  std::string parent;  // PCI address of the bridge above, empty at the root
  bool operator==(const PciDevice&) const = default;
};

struct Gpu {
  int index = 0;
  std::string model;
  std::string uuid;
  std::string pci;
  std::int64_t memory_bytes = 0;
  int numa_node = -1;
  std::vector<std::string>
      nvlink_peers;  // PCI addresses at the other end of active links, one entry per link
  bool operator==(const Gpu&) const = default;
};

/// One node's snapshot. JSON with format_version: unknown members are ignored, a newer version is
/// refused.
struct Node {
  std::string name;
  std::string source;    // "prolog" or "user": who ran the probe
  std::string taken_at;  // UTC, ISO 8601
  double probe_seconds = 0;
  double nic_latency_s = 0;           // nominal, of its own card; 0: unknown
  std::vector<std::string> switches;  // above the node, from the top down; empty: unknown
  PartStatus processors_status, memory_status, nics_status, pci_status, gpus_status;
  Processors processors;
  Memory memory;
  std::vector<Nic> nics;
  std::vector<PciDevice> pci;
  std::vector<Gpu> gpus;
  bool operator==(const Node&) const = default;
};

/// What a rank runs on: one CPU device per node (all cores it may use), or one GPU.
struct Device {
  std::string node;
  std::string kind;  // "cpu" or "cuda"
  int index = 0;
  std::string model;
  std::int64_t memory_bytes = 0;
  int threads = 1;                   // CPU threads that the device may use
  double cpus = 0;                   // CPU time per second, quotas included; 0: as many as threads
  double product_flops = 0;          // FLOP/s of large matrix products; 0: unknown
  double copy_bytes_per_second = 0;  // of its memory; 0: unknown
  std::string uuid = {};             // of a GPU, as NVML prints it
  std::string nccl = {};             // version that its ranks load, "2.28.9"; empty: unknown
  bool operator==(const Device&) const = default;
};

/// A network switch. Its speeds are nominal, not measured.
struct Switch {
  std::string name;
  std::string parent;           // empty: at the top
  double bytes_per_second = 0;  // to the parent; 0: unknown
  double latency_s = 0;         // of the switch itself
  bool operator==(const Switch&) const = default;
};

/// One direction between two nodes, or inside one (from == to).
struct Link {
  std::string from, to;  // node names
  double latency_s = 0;
  double bytes_per_second = 0;
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;              // Slurm's ClusterName, or the host's name without Slurm
  std::vector<Node> nodes;       // in the order of the allocation
  std::vector<Device> devices;   // in the order of nodes
  std::vector<Switch> switches;  // empty if none are known
  std::vector<Link> links;       // given pairs; all others follow from NICs and switches
  bool operator==(const Cluster&) const = default;
};

std::string ToJson(const Node& node);
/// Reads one snapshot from untrusted text. Fails in one line on garbage, wrong types or a newer
/// format_version.
Result<Node> NodeFromJson(std::string_view text);
std::string ToJson(const Cluster& cluster);
/// Reads a cluster from untrusted text: the output of ToJson, or a description by groups of equal
/// nodes (docs/formats.md, "Cluster files"). Names must be unique, devices and links must refer to
/// existing nodes, and speeds must be finite (those of links positive). Fails in one line.
Result<Cluster> ClusterFromJson(std::string_view text);

}  // namespace adaptive_train
