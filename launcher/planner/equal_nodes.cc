#include "launcher/planner/equal_nodes.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace adaptive_train {
namespace {

bool operator==(const LinkSpeed& a, const LinkSpeed& b) {
  return a.latency_s == b.latency_s && a.bytes_per_second == b.bytes_per_second;
}

/// The devices of a problem by nodes.
class Nodes {
 public:
  explicit Nodes(const BuiltProblem& built) : built_(built), of_node_(built.problem.links.Nodes()) {
    for (std::size_t d = 0; d < built.devices.size(); ++d)
      of_node_[static_cast<std::size_t>(built.problem.devices[d].node)].push_back(d);
  }

  int Count() const { return static_cast<int>(of_node_.size()); }
  bool HasDevices(int node) const { return !DevicesOf(node).empty(); }
  bool Equal(int a, int b) const {
    return std::equal(DevicesOf(a).begin(), DevicesOf(a).end(), DevicesOf(b).begin(),
                      DevicesOf(b).end(),
                      [this](std::size_t x, std::size_t y) { return SameDevice(x, y); }) &&
           SameLinks(a, b);
  }

 private:
  const std::vector<std::size_t>& DevicesOf(int node) const {
    return of_node_[static_cast<std::size_t>(node)];
  }
  bool SameDevice(std::size_t x, std::size_t y) const {
    const ProblemDevice &one = built_.problem.devices[x], &other = built_.problem.devices[y];
    Device moved = built_.devices[x];
    moved.node = built_.devices[y].node;
    return one.kind == other.kind && one.memory_bytes == other.memory_bytes &&
           one.standing == other.standing && moved == built_.devices[y];
  }
  bool SameLinks(int a, int b) const {
    const LinkTable& links = built_.problem.links;
    if (!(links.At(a, a) == links.At(b, b) && links.At(a, b) == links.At(b, a))) return false;
    for (int other = 0; other < Count(); ++other) {
      if (other == a || other == b) continue;
      if (!(links.At(a, other) == links.At(b, other) && links.At(other, a) == links.At(other, b)))
        return false;
    }
    return true;
  }

  const BuiltProblem& built_;
  std::vector<std::vector<std::size_t>> of_node_;
};

bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/// Exchanges whole words.
std::string ExchangedWords(const std::string& text, const std::string& a, const std::string& b) {
  std::string exchanged;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && IsOfName(text[end])) ++end;
    const std::string word = text.substr(at, std::max<std::size_t>(1, end - at));
    exchanged += word == a ? b : word == b ? a : word;
    at += word.size();
  }
  return exchanged;
}

}  // namespace

std::vector<std::vector<std::string>> EqualNodes(const Cluster& cluster, const ModelDims& dims,
                                                 const TrainingFormat& format,
                                                 const Profile& profile,
                                                 const PlanRequest& request) {
  std::vector<std::vector<std::string>> classes;
  const auto built = BuildProblem(cluster, dims, format, profile, request);
  if (!built) {
    for (const Device& device : cluster.devices)
      if (classes.empty() || classes.back().front() != device.node)
        classes.push_back({device.node});
    return classes;
  }
  const Nodes nodes(*built);
  std::vector<int> first;  // of each class
  for (int node = 0; node < nodes.Count(); ++node) {
    if (!nodes.HasDevices(node)) continue;
    const auto equal = std::find_if(first.begin(), first.end(),
                                    [&](int other) { return nodes.Equal(other, node); });
    if (equal == first.end()) classes.emplace_back();
    auto& alike = equal == first.end() ? classes.back()
                                       : classes[static_cast<std::size_t>(equal - first.begin())];
    alike.push_back(cluster.nodes[static_cast<std::size_t>(node)].name);
    if (equal == first.end()) first.push_back(node);
  }
  return classes;
}

Plan Exchanged(Plan plan, const std::string& a, const std::string& b) {
  for (RankPlan& rank : plan.ranks) {
    std::string& node = rank.device.node;
    node = node == a ? b : node == b ? a : node;
  }
  for (std::string& line : plan.why) line = ExchangedWords(line, a, b);
  return plan;
}

}  // namespace adaptive_train
