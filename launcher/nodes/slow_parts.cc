#include "launcher/nodes/slow_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/report/link_table.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kLeastOthers = 3;
constexpr double kFarBelow = 0.5;

std::optional<double> MedianOf(std::vector<double> values) {
  if (values.size() < kLeastOthers) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The nominal speed of a node's fastest card; 0 if unknown.
std::map<std::string, std::int64_t> CardSpeeds(const Cluster& cluster) {
  std::map<std::string, std::int64_t> speeds;
  for (const Node& node : cluster.nodes) {
    std::int64_t& speed = speeds[node.name];
    for (const Nic& nic : node.nics) {
      if (nic.state == "up" && nic.bits_per_second) speed = std::max(speed, *nic.bits_per_second);
    }
  }
  return speeds;
}

std::vector<SlowPart> SlowDevices(const Profile& stored, const Profile& measured) {
  std::vector<SlowPart> slow;
  for (const DeviceMeasurement& device : measured.devices) {
    std::vector<double> others;
    for (const DeviceMeasurement& other : stored.devices) {
      if (other.device_kind == device.device_kind) others.push_back(other.product_flops);
    }
    for (const DeviceMeasurement& other : measured.devices) {
      if (other.device_kind == device.device_kind && other.node != device.node)
        others.push_back(other.product_flops);
    }
    const auto usual = MedianOf(std::move(others));
    if (!usual || device.product_flops >= kFarBelow * *usual) continue;
    slow.push_back(
        {device.node, "",
         fmt::format("{}: its device gives {:.3g} GFLOP/s, others of its kind ({}) {:.3g}",
                     device.node, device.product_flops / 1e9, device.device_kind, *usual / 1e9)});
  }
  return slow;
}

/// Links between nodes, by the slower of the two cards.
class LinkKinds {
 public:
  LinkKinds(const Cluster& cluster, const Profile& stored, const Profile& measured)
      : speeds_(CardSpeeds(cluster)) {
    for (const Profile* profile : {&stored, &measured}) {
      for (const LinkMeasurement& link : profile->links) {
        if (link.from != link.to && Known(link))
          figures_[KindOf(link)].push_back(link.bytes_per_second);
      }
    }
  }
  /// The median of the links of its kind, including itself; none if too few others are known.
  std::optional<double> Usual(const LinkMeasurement& link) const {
    const auto kind = Known(link) ? figures_.find(KindOf(link)) : figures_.end();
    if (kind == figures_.end() || kind->second.size() <= kLeastOthers) return std::nullopt;
    return MedianOf(kind->second);
  }

 private:
  bool Known(const LinkMeasurement& link) const {
    return speeds_.count(link.from) != 0 && speeds_.count(link.to) != 0;
  }
  std::int64_t KindOf(const LinkMeasurement& link) const {
    return std::min(speeds_.at(link.from), speeds_.at(link.to));
  }
  const std::map<std::string, std::int64_t> speeds_;
  std::map<std::int64_t, std::vector<double>> figures_;
};

std::vector<SlowPart> SlowLinks(const Cluster& cluster, const Profile& stored,
                                const Profile& measured) {
  const LinkKinds kinds(cluster, stored, measured);
  std::map<std::string, int> ends;       // links that end at a node
  std::map<std::string, int> slow_ends;  // those of them that are slow
  std::vector<std::pair<const LinkMeasurement*, double>> slow_links;
  for (const LinkMeasurement& link : measured.links) {
    if (link.from == link.to) continue;
    ++ends[link.from], ++ends[link.to];
    const auto usual = kinds.Usual(link);
    if (!usual || link.bytes_per_second >= kFarBelow * *usual) continue;
    ++slow_ends[link.from], ++slow_ends[link.to];
    slow_links.emplace_back(&link, *usual);
  }
  std::set<std::string> slow_nodes;
  std::vector<SlowPart> slow;
  for (const auto& [node, count] : slow_ends) {
    if (count < 4 || 2 * count <= ends[node]) continue;
    slow_nodes.insert(node);
    slow.push_back({node, "",
                    fmt::format("{}: {} of its {} links are far slower than others of their kind",
                                node, count, ends[node])});
  }
  for (const auto& [link, usual] : slow_links) {
    if (slow_nodes.count(link->from) != 0 || slow_nodes.count(link->to) != 0) continue;
    slow.push_back({link->from, link->to,
                    fmt::format("link {} to {}: {}, others of its kind {}", link->from, link->to,
                                ShownRate(link->bytes_per_second), ShownRate(usual))});
  }
  return slow;
}

}  // namespace

std::vector<SlowPart> FindSlowParts(const Cluster& cluster, const Profile& stored,
                                    const Profile& measured) {
  std::vector<SlowPart> slow = SlowDevices(stored, measured);
  for (SlowPart& part : SlowLinks(cluster, stored, measured)) slow.push_back(std::move(part));
  return slow;
}

}  // namespace adaptive_train
