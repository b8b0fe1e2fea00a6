#include "tests/oracle/groups.h"

#include <algorithm>
#include <cstddef>

namespace adaptive_train::oracle {
namespace {

bool Alike(const ProblemDevice& one, const ProblemDevice& other) {
  return one.kind == other.kind && one.node == other.node &&
         one.memory_bytes == other.memory_bytes && one.standing == other.standing;
}

/// The first device that each device is like.
std::vector<int> Likenesses(const PlanProblem& problem) {
  std::vector<int> first;
  for (const ProblemDevice& device : problem.devices) {
    std::size_t like = 0;
    while (!Alike(problem.devices[like], device)) ++like;
    first.push_back(static_cast<int>(like));
  }
  return first;
}

}  // namespace

Groups::Groups(const PlanProblem& problem, int tensor) : tensor_(tensor) {
  const std::vector<int> likeness = Likenesses(problem);
  const auto devices = static_cast<int>(problem.devices.size());
  alike_before_.resize(problem.devices.size());
  for (std::size_t device = 0; device < problem.devices.size(); ++device)
    for (std::size_t before = 0; before < device; ++before)
      if (likeness[before] == likeness[device]) alike_before_[device] |= DeviceSet{1} << before;
  std::map<std::vector<int>, int> seen;  // likenesses of members -> of the group
  for (DeviceSet set = 1; set < DeviceSet{1} << devices; ++set) {
    Group group;
    group.set = set;
    std::vector<int> likenesses;
    bool one_node = true;
    for (int device = 0; device < devices; ++device) {
      if (!(set >> device & 1)) continue;
      const ProblemDevice& member = problem.devices[static_cast<std::size_t>(device)];
      one_node = one_node && (group.devices.empty() || member.node == group.node);
      group.memory_bytes = group.devices.empty()
                               ? member.memory_bytes
                               : std::min(group.memory_bytes, member.memory_bytes);
      group.node = member.node;
      group.devices.push_back(device);
      likenesses.push_back(likeness[static_cast<std::size_t>(device)]);
    }
    if (!one_node || static_cast<int>(group.devices.size()) != tensor) continue;
    std::sort(likenesses.begin(), likenesses.end());
    group.likeness = seen.emplace(likenesses, static_cast<int>(seen.size())).first->second;
    groups_.push_back(group);
  }
}

bool Groups::IsFirstFree(int group, DeviceSet used) const {
  const Group& of = (*this)[group];
  if (of.set & used) return false;
  for (const int device : of.devices)
    if (alike_before_[static_cast<std::size_t>(device)] & ~(used | of.set)) return false;
  return true;
}

StageTimes::StageTimes(const PlanProblem& problem, const Groups& groups, Recompute recompute,
                       double samples)
    : layers_(static_cast<int>(problem.layers.size())),
      devices_(static_cast<int>(problem.devices.size())) {
  const auto width = static_cast<std::size_t>(layers_ + 1);
  forward_.assign(static_cast<std::size_t>(groups.size()) * width * width, 0);
  backward_ = forward_;
  const int tensor = groups.tensor();
  std::vector<double> fastest(static_cast<std::size_t>(devices_ * layers_));
  for (int device = 0; device < devices_; ++device)
    for (int layer = 0; layer < layers_; ++layer)
      fastest[static_cast<std::size_t>(device * layers_ + layer)] =
          ForwardOf(problem, device, layer, tensor, samples) +
          BackwardOf(problem, device, layer, tensor, recompute, samples);
  for (int group = 0; group < groups.size(); ++group)
    for (const int device : groups[group].devices)
      for (int first = 0; first < layers_; ++first) {
        double forward = 0, backward = 0;
        for (int layer = first; layer < layers_; ++layer) {
          forward += ForwardOf(problem, device, layer, tensor, samples);
          backward += BackwardOf(problem, device, layer, tensor, recompute, samples);
          const std::size_t index = Index(group, {first, layer + 1});
          forward_[index] = std::max(forward_[index], forward);
          backward_[index] = std::max(backward_[index], backward);
        }
      }
  least_before_.assign((std::size_t{1} << devices_) * width, 0);
  for (DeviceSet used = 0; used + 1 < DeviceSet{1} << devices_; ++used)
    for (int layer = 0; layer < layers_; ++layer) {
      double least = std::numeric_limits<double>::infinity();
      for (int device = 0; device < devices_; ++device)
        if (!(used >> device & 1))
          least = std::min(least, fastest[static_cast<std::size_t>(device * layers_ + layer)]);
      const std::size_t index = used * width + static_cast<std::size_t>(layer);
      least_before_[index + 1] = least_before_[index] + least;
    }
}

double StageTimes::LeastBefore(int end, DeviceSet used) const {
  return least_before_[used * static_cast<std::size_t>(layers_ + 1) +
                       static_cast<std::size_t>(end)];
}

std::size_t StageTimes::Index(int group, LayerRange range) const {
  const int width = layers_ + 1;
  return static_cast<std::size_t>((group * width + range.first) * width + range.end);
}

const ExactRing& Exchanges::Ring(const std::vector<int>& members) {
  const auto found = rings_.find(members);
  if (found != rings_.end()) return found->second;
  std::vector<int> nodes;
  for (const int member : members) nodes.push_back(groups_[member].node);
  return rings_.emplace(members, BestRingOf(problem_, nodes)).first->second;
}

std::vector<bool> Exchanges::Compressed(const std::vector<int>& members, LayerRange range) {
  std::vector<bool> compressed(problem_.layers.size());
  for (int layer = range.first; layer < range.end; ++layer)
    compressed[static_cast<std::size_t>(layer)] =
        Compresses(problem_, layer, Ring(members).links, static_cast<int>(members.size()));
  return compressed;
}

const StageExchange& Exchanges::Of(const std::vector<int>& members, LayerRange range) {
  DeviceSet set = 0;
  for (const int member : members) set |= groups_[member].set;
  const std::uint64_t key = (std::uint64_t{set} << 8 | static_cast<std::uint64_t>(range.first))
                                << 8 |
                            static_cast<std::uint64_t>(range.end);
  const auto found = stages_.find(key);
  if (found != stages_.end()) return found->second;
  const auto data = static_cast<int>(members.size());
  StageExchange stage;
  stage.gradients =
      ExchangeOf(problem_, range, Compressed(members, range), Ring(members).links, data);
  for (const int member : members)
    for (const int device : groups_[member].devices) {
      double sum = 0;
      for (int layer = range.first; layer < range.end; ++layer)
        sum += UpdateOf(problem_, device, layer, groups_.tensor(), data, shard_);
      stage.update = std::max(stage.update, sum);
    }
  return stages_.emplace(key, stage).first->second;
}

}  // namespace adaptive_train::oracle
