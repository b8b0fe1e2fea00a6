#include "launcher/nodes/spares.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/exit_code.h"
#include "launcher/nodes/slow_parts.h"
#include "launcher/report/link_table.h"

namespace adaptive_train {
namespace {

constexpr double kAlike = 0.05;

/// Reasons against a node, the most important first.
enum Criterion : std::size_t {
  kTrouble,
  kFailures,
  kLostLinks,
  kSlowLinks,
  kSlowDevice,
  kSlowRate,
  kCriteria
};

struct Standing {
  std::string node;
  std::string trouble;                      // the line about being far slower than its kind
  std::string failures, lost_links;         // in words
  std::array<double, kCriteria> badness{};  // 0: nothing is known against it
};

/// `criterion` is what distinguished this node from the others; kCriteria: nothing.
std::string ReasonOf(const Standing& standing, std::size_t criterion) {
  if (criterion == kCriteria) return standing.node + ": the last one, nothing speaks against it";
  const double badness = standing.badness[criterion];
  switch (criterion) {
    case kTrouble:
      return standing.trouble;
    case kFailures:
      return standing.failures;
    case kLostLinks:
      return standing.lost_links;
    case kSlowLinks:
      return fmt::format("{}: links far slower than others of their kind: {:.0f}", standing.node,
                         badness);
    case kSlowDevice:
      return fmt::format("{}: its device is the slowest, {:.4g} GFLOP/s", standing.node,
                         1e-9 / badness);
    default:
      return fmt::format("{}: its links are the slowest, {} in the middle", standing.node,
                         ShownRate(1 / badness));
  }
}

double MedianRate(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Nodes leave it in turn, the worst first.
class Race {
 public:
  Race(const Cluster& cluster, const Profile& profile) {
    for (const Node& node : cluster.nodes) {
      standings_[node.name].node = node.name;
      left_.push_back(&standings_[node.name]);
    }
    AddFailures(profile);
    AddSpeeds(cluster, profile);
    for (SlowPart& part : FindSlowParts(cluster, {}, profile)) {
      const auto found = standings_.find(part.node);
      if (part.peer.empty() && found != standings_.end()) found->second.trouble = part.line;
      if (part.peer.empty())
        Add(part.node, kTrouble, 1);
      else
        AddSlowLink(std::move(part));
    }
  }

  SpareNode TakeWorst() {
    std::vector<Standing*> worst = left_;
    std::size_t decisive = kCriteria;
    for (std::size_t criterion = 0; criterion < kCriteria; ++criterion) {
      std::vector<Standing*> next = WorstBy(criterion, worst);
      if (decisive == kCriteria && next.size() < worst.size()) decisive = criterion;
      worst = std::move(next);
    }
    Standing* taken = worst.back();
    SpareNode spare{taken->node, ReasonOf(*taken, decisive), {}, decisive != kCriteria};
    left_.erase(std::find(left_.begin(), left_.end(), taken));
    std::erase_if(slow_links_, [&](const SlowPart& link) {
      const bool gone = link.node == taken->node || link.peer == taken->node;
      if (gone) AddToEnds(link, -1);
      return gone;
    });
    std::erase_if(lost_links_, [&](const LinkHistory& link) {
      return link.from == taken->node || link.to == taken->node;
    });
    CountLostLinks();
    return spare;
  }

 private:
  /// Profiles may contain nodes outside the cluster.
  void Add(const std::string& node, Criterion criterion, double badness) {
    const auto found = standings_.find(node);
    if (found != standings_.end()) found->second.badness[criterion] += badness;
  }
  void AddFailures(const Profile& profile) {
    for (const NodeHistory& history : profile.nodes) {
      if (history.failures < kFailedLately) continue;
      Add(history.node, kFailures, history.failures);
      if (standings_.contains(history.node)) standings_[history.node].failures = Describe(history);
    }
    for (const LinkHistory& link : profile.lost_links)
      if (link.failures >= kFailedLately && standings_.contains(link.from) &&
          standings_.contains(link.to))
        lost_links_.push_back(link);
    CountLostLinks();
  }
  /// Anew, as a difference of counts may not be 0 where it should be.
  void CountLostLinks() {
    for (Standing* standing : left_) standing->badness[kLostLinks] = 0;
    for (const LinkHistory& link : lost_links_) {
      for (const std::string& end : {link.from, link.to}) {
        Add(end, kLostLinks, link.failures);
        standings_[end].lost_links = fmt::format("{}, {}", end, Describe(link));
      }
    }
  }
  void AddToEnds(const SlowPart& link, double badness) {
    Add(link.node, kSlowLinks, badness);
    Add(link.peer, kSlowLinks, badness);
  }
  void AddSlowLink(SlowPart link) {
    AddToEnds(link, 1);
    slow_links_.push_back(std::move(link));
  }
  /// As measured; if no device of a node was, as the cluster states.
  void AddSpeeds(const Cluster& cluster, const Profile& profile) {
    std::map<std::string, double> flops;
    std::map<std::string, std::vector<double>> rates;
    for (const DeviceMeasurement& device : profile.devices)
      // One may have been measured in several ways, as with unlike numbers of threads.
      flops[device.node] = std::max(flops[device.node], device.product_flops);
    std::map<std::string, double> promised;
    for (const Device& device : cluster.devices) promised[device.node] += device.product_flops;
    for (const auto& [node, speed] : promised)
      if (speed > 0) flops.emplace(node, speed);
    for (const LinkMeasurement& link : profile.links) {
      if (link.from == link.to) continue;
      rates[link.from].push_back(link.bytes_per_second);
      rates[link.to].push_back(link.bytes_per_second);
    }
    for (const auto& [node, speed] : flops) Add(node, kSlowDevice, 1 / speed);
    for (const auto& [node, speeds] : rates) Add(node, kSlowRate, 1 / MedianRate(speeds));
  }

  static std::vector<Standing*> WorstBy(std::size_t criterion,
                                        const std::vector<Standing*>& standings) {
    double highest = 0;
    for (const Standing* standing : standings)
      highest = std::max(highest, standing->badness[criterion]);
    std::vector<Standing*> worst = standings;
    std::erase_if(worst, [&](const Standing* standing) {
      return standing->badness[criterion] < (1 - kAlike) * highest;
    });
    return worst;
  }

  std::map<std::string, Standing> standings_;
  std::vector<Standing*> left_;          // in allocation order
  std::vector<SlowPart> slow_links_;     // between nodes that are left
  std::vector<LinkHistory> lost_links_;  // the same
};

}  // namespace

Result<std::vector<SpareNode>> ChooseSpares(const Cluster& cluster, const Profile& profile,
                                            int count) {
  const int nodes = static_cast<int>(cluster.nodes.size());
  std::vector<SpareNode> spares;
  if (count <= 0) return spares;
  if (count >= nodes)
    return Fail(fmt::format("spares={} leaves none of {} node{} to train; allowed: 0 to {}", count,
                            nodes, nodes == 1 ? "" : "s", nodes - 1),
                ExitCode::kNoPlan);
  Race race(cluster, profile);
  for (int i = 0; i < count; ++i) spares.push_back(race.TakeWorst());
  return spares;
}

void KeepAside(std::vector<SpareNode>& spares, Cluster& cluster) {
  for (SpareNode& spare : spares)
    for (Device& device : std::exchange(cluster.devices, {}))
      (device.node == spare.node ? spare.devices : cluster.devices).push_back(std::move(device));
}

void PutIn(const SpareNode& spare, Cluster& cluster) {
  std::vector<Device> devices = std::exchange(cluster.devices, {});
  devices.insert(devices.end(), spare.devices.begin(), spare.devices.end());
  for (const Node& node : cluster.nodes)
    for (Device& device : devices)
      if (device.node == node.name) cluster.devices.push_back(std::move(device));
}

void LeaveOut(const std::string& name, Cluster& cluster) {
  std::erase_if(cluster.nodes, [&](const Node& node) { return node.name == name; });
  std::erase_if(cluster.devices, [&](const Device& device) { return device.node == name; });
}

std::string TakeSpare(Cluster& cluster, std::vector<SpareNode>& spares) {
  if (spares.empty()) return "";
  PutIn(spares.back(), cluster);
  const std::string words = fmt::format(" ({} takes its place)", spares.back().node);
  spares.pop_back();
  return words;
}

std::string ReplaceLost(const std::vector<std::string>& lost, Cluster& cluster,
                        std::vector<SpareNode>& spares) {
  std::string words;
  for (const std::string& node : lost) {
    LeaveOut(node, cluster);
    words += (words.empty() ? " without " : ", ") + node + TakeSpare(cluster, spares);
  }
  return words;
}

}  // namespace adaptive_train
