#include "launcher/nodes/standings.h"

#include <algorithm>
#include <map>

#include "core/cluster.h"
#include "launcher/nodes/spares.h"

namespace adaptive_train {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

using Standings = std::map<std::string, NodeStanding>;

void See(NodeStanding& standing, const Evidence& evidence) {
  standing.last_seen = std::max(standing.last_seen, evidence.measured_at);
}

void AddDevices(const Profile& profile, Standings& nodes) {
  std::map<std::string, std::vector<double>> kinds;
  for (const DeviceMeasurement& device : profile.devices)
    kinds[device.device_kind].push_back(device.product_flops);
  for (const DeviceMeasurement& device : profile.devices) {
    if (device.node.empty()) continue;
    const std::vector<double>& kind = kinds[device.device_kind];
    NodeStanding& standing = nodes[device.node];
    standing.devices.push_back({device, kind.size() > 1 ? device.product_flops / Median(kind) : 0});
    See(standing, device.evidence);
  }
}

void AddLinks(const Profile& profile, Standings& nodes) {
  std::map<std::string, std::vector<double>> rates;
  for (const LinkMeasurement& link : profile.links) {
    if (link.from == link.to) continue;
    for (const std::string& end : {link.from, link.to}) {
      rates[end].push_back(link.bytes_per_second);
      See(nodes[end], link.evidence);
    }
  }
  for (auto& [node, speeds] : rates) nodes[node].bytes_per_second = Median(std::move(speeds));
}

void AddFailures(const Profile& profile, Standings& nodes) {
  for (const NodeHistory& history : profile.nodes) nodes[history.node].failures = history;
  for (const LinkHistory& link : profile.lost_links)
    for (const std::string& end : {link.from, link.to}) nodes[end].lost_links += link.failures;
}

/// As many as there are but one can be kept aside.
std::vector<SpareNode> OrderOf(const Standings& nodes, const Profile& profile) {
  Cluster cluster;
  for (const auto& [name, standing] : nodes) cluster.nodes.emplace_back().name = name;
  auto order = ChooseSpares(cluster, profile, static_cast<int>(nodes.size()) - 1);
  if (!order) return {};
  for (const auto& [name, standing] : nodes)
    if (std::ranges::find(*order, name, &SpareNode::node) == order->end())
      order->push_back({name, "", {}, false});
  return *order;
}

}  // namespace

std::vector<NodeStanding> StandingsOf(const Profile& profile) {
  Standings nodes;
  AddDevices(profile, nodes);
  AddLinks(profile, nodes);
  AddFailures(profile, nodes);
  std::vector<NodeStanding> standings;
  for (const SpareNode& next : OrderOf(nodes, profile)) {
    NodeStanding& standing = standings.emplace_back(std::move(nodes[next.node]));
    standing.node = next.node;
    if (next.blamed) standing.why = next.why.substr(next.node.size() + 2);
  }
  return standings;
}

}  // namespace adaptive_train
