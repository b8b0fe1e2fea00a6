#include "launcher/measure/profile_reuse.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/device_kind.h"
#include "db/profile_merge.h"
#include "launcher/measure/link_rounds.h"

namespace adaptive_train {
namespace {

using NamePair = std::pair<std::string, std::string>;

std::map<NamePair, const LinkMeasurement*> ByNames(const Profile& profile) {
  std::map<NamePair, const LinkMeasurement*> links;
  for (const LinkMeasurement& link : profile.links) links[{link.from, link.to}] = &link;
  return links;
}

/// Adds `fresh` to `known`: merged with the entry of the same key, or as a new one.
template <class Measurement, class Key, class Merge>
void MergeInto(std::vector<Measurement>& known, const std::vector<Measurement>& fresh, Key key,
               Merge merge) {
  std::map<decltype(key(known.front())), std::size_t> places;
  for (std::size_t i = 0; i < known.size(); ++i) places[key(known[i])] = i;
  for (const Measurement& one : fresh) {
    const auto [place, is_new] = places.emplace(key(one), known.size());
    if (is_new) {
      known.push_back(one);
    } else {
      known[place->second] = merge(known[place->second], one);
    }
  }
}

template <class DeviceMerge>
Profile Together(Profile known, const Profile& fresh, DeviceMerge merge_devices) {
  const auto merge = [](const auto& a, const auto& b) { return Merged(a, b); };
  MergeInto(
      known.links, fresh.links,
      [](const LinkMeasurement& link) { return NamePair(link.from, link.to); }, merge);
  MergeInto(
      known.devices, fresh.devices,
      [](const DeviceMeasurement& device) { return NamePair(device.node, device.device_kind); },
      merge_devices);
  MergeInto(
      known.layers, fresh.layers,
      [](const LayerMeasurement& layer) {
        return std::tuple(layer.device_kind, layer.model, layer.layer, layer.micro_batch);
      },
      merge);
  return known;
}

/// The median over the devices of a kind; 0 if there are none.
double MedianProduct(const Profile& profile, const std::string& kind) {
  std::vector<double> products;
  for (const DeviceMeasurement& device : profile.devices)
    if (device.device_kind == kind) products.push_back(device.product_flops);
  if (products.empty()) return 0;
  std::sort(products.begin(), products.end());
  return (products[(products.size() - 1) / 2] + products[products.size() / 2]) / 2;
}

/// Bytes per second of a node's fastest card; none: a driver does not tell.
std::optional<double> FastestCard(const Node& node) {
  std::int64_t most = 0;
  for (const Nic& nic : node.nics) {
    if (nic.state == "down") continue;
    if (!nic.bits_per_second) return std::nullopt;
    most = std::max(most, *nic.bits_per_second);
  }
  if (most == 0) return std::nullopt;
  return static_cast<double>(most) / 8;
}

/// Float32 operations of a core's widest fused multiply-adds in a cycle: two units of x86, four of
/// 128 bits of Arm. None: an instruction set that is not known here.
std::optional<double> FlopsOfACycle(const std::string& isa) {
  if (isa.starts_with("avx512")) return 64;
  if (isa == "avx2" || isa == "neon") return 32;
  if (isa.starts_with("sse")) return 16;
  return std::nullopt;
}

/// The most that float32 products can reach on a processor, in FLOP/s; none: not known.
std::optional<double> PeakOf(const Device& device, const Cluster& cluster) {
  constexpr double kFastestClock = 6.5e9;  // Hz; snapshots do not have it
  const auto node = std::ranges::find(cluster.nodes, device.node, &Node::name);
  if (device.kind != "cpu" || node == cluster.nodes.end()) return std::nullopt;
  const auto of_cycle = FlopsOfACycle(node->processors.isa);
  if (!of_cycle) return std::nullopt;
  const int cores = node->processors.cores;
  return *of_cycle * kFastestClock * (cores > 0 ? std::min(device.threads, cores) : device.threads);
}

void LimitDevices(std::vector<DeviceMeasurement>& told, const Cluster& cluster) {
  std::map<NamePair, std::optional<double>> peaks;
  for (const Device& device : cluster.devices)
    peaks[{device.node, DeviceKindName(device)}] = PeakOf(device, cluster);
  for (DeviceMeasurement& device : told) {
    if (device.evidence.trust == Trust::kKnown) continue;
    if (const auto peak = peaks[{device.node, device.device_kind}])
      device.product_flops = std::min(device.product_flops, *peak);
  }
}

void LimitLinks(std::vector<LinkMeasurement>& told, const Cluster& cluster) {
  std::map<std::string, std::optional<double>> fastest;
  for (const Node& node : cluster.nodes) fastest[node.name] = FastestCard(node);
  for (LinkMeasurement& link : told) {
    if (link.evidence.trust == Trust::kKnown || link.from == link.to) continue;
    for (const std::string& end : {link.from, link.to})
      if (const auto card = fastest[end])
        link.bytes_per_second = std::min(link.bytes_per_second, *card);
  }
}

}  // namespace

SpotCheck SpotCheckOf(const ProfileConfig& profile, const Cluster& cluster) {
  return profile.measure && cluster.nodes.size() > 1 ? SpotCheck::kYes : SpotCheck::kNo;
}

Profile Usable(Profile told, const Cluster& cluster, SpotCheck check) {
  const auto of_no_use = [&](const auto& figure) {
    const Trust trust = figure.evidence.trust;
    return trust == Trust::kDisputed || (trust == Trust::kUnconfirmed && check == SpotCheck::kNo);
  };
  std::erase_if(told.links, of_no_use);
  std::erase_if(told.devices, of_no_use);
  LimitLinks(told.links, cluster);
  LimitDevices(told.devices, cluster);
  return told;
}

ReusePlan PlanReuse(const Profile& stored, const std::vector<MeasuredNode>& nodes, double now,
                    bool reuse, std::int64_t turn) {
  const auto links = ByNames(stored);
  const auto fresh_link = [&](int from, int to) {
    const auto link = links.find(
        {nodes[static_cast<std::size_t>(from)].name, nodes[static_cast<std::size_t>(to)].name});
    return reuse && link != links.end() &&
           link->second->evidence.Confidence(now) >= kFreshConfidence;
  };
  const auto fresh_device = [&](const MeasuredNode& node) {
    return std::any_of(
        stored.devices.begin(), stored.devices.end(), [&](const DeviceMeasurement& device) {
          return device.node == node.name && device.device_kind == node.device_kind &&
                 device.evidence.Confidence(now) >= kFreshConfidence;
        });
  };
  ReusePlan plan;
  const MeasureRounds rounds = AllPairs(static_cast<int>(nodes.size()));
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const bool checked = i == static_cast<std::size_t>(turn) % rounds.size();
    for (const RankPair& pair : rounds[i]) {
      if (!fresh_link(pair.first, pair.second) || !fresh_link(pair.second, pair.first)) {
        plan.missing.push_back(pair);
      } else if (checked) {
        plan.check.push_back(pair);
      }
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const int self = static_cast<int>(i);
    const bool fresh = reuse && fresh_link(self, self) && fresh_device(nodes[i]);
    (fresh ? plan.check_devices : plan.devices).push_back(self);
  }
  return plan;
}

std::vector<int> ChangedNodes(const Profile& stored, const Profile& checked,
                              const std::vector<MeasuredNode>& nodes) {
  std::map<std::string, int> numbers;
  for (std::size_t i = 0; i < nodes.size(); ++i) numbers[nodes[i].name] = static_cast<int>(i);
  const auto known = ByNames(stored);
  std::set<int> changed;
  for (const LinkMeasurement& link : checked.links) {
    const auto before = known.find({link.from, link.to});
    if (link.from == link.to || before == known.end()) continue;
    const LinkMeasurement& old = *before->second;
    if (Contradicts(link.bytes_per_second, old.bytes_per_second, old.evidence.spread))
      changed.insert({numbers.at(link.from), numbers.at(link.to)});
  }
  return {changed.begin(), changed.end()};
}

std::vector<RankPair> PairsOf(const std::vector<int>& changed, int nodes,
                              const std::vector<RankPair>& done) {
  std::set<RankPair> pairs;
  for (int a : changed) {
    for (int b = 0; b < nodes; ++b) {
      if (a != b) pairs.emplace(std::min(a, b), std::max(a, b));
    }
  }
  for (const RankPair& pair : done) pairs.erase(pair);
  return {pairs.begin(), pairs.end()};
}

std::vector<int> DoubtfulDevices(const Profile& stored, const Profile& measured,
                                 const std::vector<MeasuredNode>& nodes) {
  std::map<NamePair, const DeviceMeasurement*> known;
  for (const DeviceMeasurement& device : stored.devices)
    known[{device.node, device.device_kind}] = &device;
  std::set<std::string> kinds;
  for (const DeviceMeasurement& device : measured.devices) {
    const auto before = known.find({device.node, device.device_kind});
    if (device.evidence.spread > kSameWithin ||
        Contradicts(device.product_flops, MedianProduct(measured, device.device_kind), 0) ||
        (before != known.end() && Contradicts(device, *before->second)))
      kinds.insert(device.device_kind);
  }
  std::vector<int> doubtful;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (kinds.contains(nodes[i].device_kind)) doubtful.push_back(static_cast<int>(i));
  return doubtful;
}

Profile WithMeasured(Profile known, const Profile& fresh) {
  return Together(std::move(known), fresh,
                  [](const auto& a, const auto& b) { return Merged(a, b); });
}

Profile BothLooks(Profile first, const Profile& second) {
  return Together(std::move(first), second,
                  [](const auto& a, const auto& b) { return Joined(a, b); });
}

}  // namespace adaptive_train
