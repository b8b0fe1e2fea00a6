// Tensor groups of a problem's devices, and what stages on them cost: tables for the subset oracle.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "launcher/planner/problem.h"
#include "tests/oracle/exact_ring.h"
#include "tests/oracle/terms.h"

namespace adaptive_train::oracle {

using DeviceSet = std::uint32_t;  // bit = device

/// Devices of one node that share a stage's layers.
struct Group {
  std::vector<int> devices;  // ascending
  DeviceSet set = 0;
  int node = 0;
  double memory_bytes = 0;  // of the device that has least
  int likeness = 0;         // groups of the same likeness are interchangeable
};

/// All groups of `tensor` devices.
class Groups {
 public:
  Groups(const PlanProblem& problem, int tensor);
  int size() const { return static_cast<int>(groups_.size()); }
  const Group& operator[](int group) const { return groups_[static_cast<std::size_t>(group)]; }
  int tensor() const { return tensor_; }

  /// Whether a group is free and, of interchangeable devices, takes the first free ones.
  bool IsFirstFree(int group, DeviceSet used) const;

 private:
  int tensor_;
  std::vector<Group> groups_;
  std::vector<DeviceSet> alike_before_;  // index = device
};

/// Seconds of every range of layers on every group, for micro-batches of one size.
class StageTimes {
 public:
  StageTimes(const PlanProblem& problem, const Groups& groups, Recompute recompute, double samples);
  double Forward(int group, LayerRange range) const { return forward_[Index(group, range)]; }
  double Backward(int group, LayerRange range) const { return backward_[Index(group, range)]; }
  double Both(int group, LayerRange range) const {
    return Forward(group, range) + Backward(group, range);
  }
  /// No group of devices outside of `used` takes less for layers [0, end).
  double LeastBefore(int end, DeviceSet used) const;

 private:
  std::size_t Index(int group, LayerRange range) const;
  int layers_ = 0;
  int devices_ = 0;
  std::vector<double> forward_, backward_;
  std::vector<double> least_before_;  // index = used x (layers + 1) + end
};

/// What a stage adds to a step besides its replicas' own time.
struct StageExchange {
  ExchangeTerms gradients;
  double update = 0;  // of the slowest device
};

/// Rings and exchanges of stages, kept by set of devices.
class Exchanges {
 public:
  Exchanges(const PlanProblem& problem, const Groups& groups, int shard)
      : problem_(problem), groups_(groups), shard_(shard) {}
  const ExactRing& Ring(const std::vector<int>& members);
  /// By the rule for the stage's layers; all layers of other stages are false.
  std::vector<bool> Compressed(const std::vector<int>& members, LayerRange range);
  const StageExchange& Of(const std::vector<int>& members, LayerRange range);

 private:
  const PlanProblem& problem_;
  const Groups& groups_;
  int shard_;
  std::map<std::vector<int>, ExactRing> rings_;
  std::unordered_map<std::uint64_t, StageExchange> stages_;
};

}  // namespace adaptive_train::oracle
