#include "launcher/planner/nominal_links.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace adaptive_train {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// A node's path up: the narrowest link on the way to each of its switches, from the leaf.
struct WayUp {
  std::vector<std::string> switches;  // leaf first
  std::vector<double> narrowest;      // up to that switch
  std::vector<double> latency_s;      // that switch included
  double card = 0;                    // 0: unknown
};

double CardSpeed(const Node& node) {
  double best = 0;
  for (const Nic& nic : node.nics) {
    if (nic.state == "up" && nic.bits_per_second)
      best = std::max(best, static_cast<double>(*nic.bits_per_second) / 8);
  }
  return best;
}

WayUp WayOf(const Node& node, const std::map<std::string, const Switch*>& switches) {
  WayUp way;
  way.card = CardSpeed(node);
  double narrowest = way.card > 0 ? way.card : kUnlimited;
  double latency = node.nic_latency_s;
  for (auto name = node.switches.rbegin(); name != node.switches.rend(); ++name) {
    const auto found = switches.find(*name);
    const Switch* here = found == switches.end() ? nullptr : found->second;
    if (here != nullptr) latency += here->latency_s;
    way.switches.push_back(*name);
    way.narrowest.push_back(narrowest);
    way.latency_s.push_back(latency);
    if (here != nullptr && here->bytes_per_second > 0)
      narrowest = std::min(narrowest, here->bytes_per_second);
  }
  return way;
}

/// The path over the lowest common switch, which is passed once.
LinkSpeed Between(const WayUp& a, const WayUp& b, double a_latency, double b_latency,
                  const std::map<std::string, const Switch*>& switches, bool& assumed) {
  double bandwidth = 0, latency = a_latency + b_latency;
  if (a.switches.empty() || b.switches.empty()) {
    bandwidth = std::min(a.card > 0 ? a.card : kUnlimited, b.card > 0 ? b.card : kUnlimited);
  } else {
    for (std::size_t i = 0; i < a.switches.size() && bandwidth == 0; ++i) {
      const auto same = std::find(b.switches.begin(), b.switches.end(), a.switches[i]);
      if (same == b.switches.end()) continue;
      const auto j = static_cast<std::size_t>(same - b.switches.begin());
      const auto found = switches.find(a.switches[i]);
      bandwidth = std::min(a.narrowest[i], b.narrowest[j]);
      latency = a.latency_s[i] + b.latency_s[j] -
                (found == switches.end() ? 0 : found->second->latency_s);
    }
    if (bandwidth == 0) return {};
  }
  if (bandwidth == kUnlimited) {
    assumed = true;
    bandwidth = kAssumedNetwork.bytes_per_second;
  }
  return {latency > 0 ? latency : kAssumedNetwork.latency_s, bandwidth};
}

}  // namespace

LinkTable NominalLinks(const Cluster& cluster, bool& assumed) {
  std::map<std::string, const Switch*> switches;
  for (const Switch& one : cluster.switches) switches[one.name] = &one;
  std::map<std::string, int> index;
  std::vector<WayUp> ways;
  for (const Node& node : cluster.nodes) {
    index[node.name] = static_cast<int>(ways.size());
    ways.push_back(WayOf(node, switches));
  }
  const int nodes = static_cast<int>(ways.size());
  LinkTable table(ways.size(), kAssumedInside);
  for (int a = 0; a < nodes; ++a) {
    for (int b = 0; b < nodes; ++b) {
      if (a == b) continue;
      const auto& from = cluster.nodes[static_cast<std::size_t>(a)];
      const auto& to = cluster.nodes[static_cast<std::size_t>(b)];
      table.At(a, b) = Between(ways[static_cast<std::size_t>(a)], ways[static_cast<std::size_t>(b)],
                               from.nic_latency_s, to.nic_latency_s, switches, assumed);
    }
  }
  for (const Link& link : cluster.links) {
    LinkSpeed& speed = table.At(index[link.from], index[link.to]);
    speed.bytes_per_second = link.bytes_per_second;
    if (link.latency_s > 0) speed.latency_s = link.latency_s;
  }
  return table;
}

}  // namespace adaptive_train
