// A cluster's JSON, as a run saves it and as people write it: what is accepted holds together, and
// reads again as it was written.
#include <cmath>

#include "core/cluster.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

constexpr char kByGroups[] = R"({"format_version": 1, "name": "two-switches",
 "switches": [{"name": "core"}, {"name": "s1", "parent": "core", "gbit_per_s": 100, "latency_us": 1}],
 "groups": [{"prefix": "a", "nodes": 4, "switch": "s1", "nic_gbit_per_s": 25, "latency_us": 5,
   "device": {"kind": "cuda", "model": "A100", "count": 8, "memory_gib": 80, "tflops": 120,
              "copy_gb_per_s": 1300}, "inside_gb_per_s": 200, "inside_latency_us": 3},
  {"prefix": "b", "nodes": 2, "nic_gbit_per_s": 10,
   "device": {"kind": "cpu", "model": "EPYC", "threads": 32, "memory_gib": 256, "tflops": 2}}],
 "links": [{"from": "a1", "to": "a2", "gbit_per_s": 1, "latency_us": 50}]})";

constexpr char kAtTheEdges[] = R"({"format_version": 1, "name": "x",
 "switches": [{"name": "s", "parent": "t"}, {"name": "t", "parent": "s"}],
 "groups": [{"prefix": "", "nodes": 1, "switch": "s", "nic_gbit_per_s": 1e300,
   "device": {"kind": "cuda", "model": "", "count": 1024, "memory_gib": 1e300, "tflops": 1e300}}],
 "links": []})";

Cluster SomeCluster() {
  Cluster cluster;
  cluster.name = "c";
  for (const char* name : {"n1", "n2"}) {
    Node node;
    node.name = name;
    node.source = "prolog";
    node.processors.allowed_threads = 2;
    node.memory.total_bytes = std::int64_t{8} << 30;
    node.switches = {"top", "leaf"};
    cluster.nodes.push_back(node);
    Device device;
    device.node = name;
    device.kind = "cpu";
    device.memory_bytes = node.memory.total_bytes;
    device.product_flops = 1e11;
    cluster.devices.push_back(device);
  }
  cluster.switches = {{"top", "", 0, 0}, {"leaf", "top", 1e9, 1e-6}};
  cluster.links = {{"n1", "n2", 1e-5, 1e8}, {"n2", "n2", 1e-6, 1e10}};
  return cluster;
}

}  // namespace

void FuzzOne(std::string_view input) {
  const auto cluster = ClusterFromJson(input);
  if (!cluster) {
    Require(!cluster.error().message.empty());
    Require(cluster.error().message.find('\n') == std::string::npos);
    return;
  }
  Require(!cluster->nodes.empty() && !cluster->devices.empty());
  for (const Device& device : cluster->devices)
    Require(device.memory_bytes >= 0 && std::isfinite(device.product_flops));
  for (const Link& link : cluster->links)
    Require(std::isfinite(link.bytes_per_second) && link.bytes_per_second > 0 &&
            std::isfinite(link.latency_s) && link.latency_s >= 0);
  const std::string text = ToJson(*cluster);
  const auto again = ClusterFromJson(text);
  Require(again && ToJson(*again) == text);
}

std::vector<std::string> FuzzSeeds() {
  return {kByGroups,
          kAtTheEdges,
          ToJson(SomeCluster()),
          ToJson(Cluster{}),
          R"({"format_version":1,"name":"x","nodes":3,"devices":[]})",
          "{}"};
}

}  // namespace adaptive_train::fuzz
