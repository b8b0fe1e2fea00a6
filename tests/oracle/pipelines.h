// The subset oracle's search among pipelines of two or more stages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/oracle/found.h"
#include "tests/oracle/groups.h"

namespace adaptive_train::oracle {

/// One family of layouts.
struct PipelineFamily {
  int stages = 2;
  int data = 1;
  int shard = 0;
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batch = 1;
};

/// Searches a family for a layout that takes less than `best` and puts it there.
class PipelineSearch {
 public:
  /// Keeps references to all but the family.
  PipelineSearch(const PlanProblem& problem, const Groups& groups, const StageTimes& times,
                 Exchanges& exchanges, const PipelineFamily& family, std::optional<Best>& best);

  /// Keeps at most `most_labels` of each stage: exact only without such a limit.
  void Run(std::size_t most_labels);

 private:
  static constexpr int kMostReplicas = 4;
  template <typename Value>
  using PerReplica = std::array<Value, kMostReplicas>;

  /// What is known of the stages from one to the last.
  struct Label {
    PerReplica<double> round_trip{};  // U
    PerReplica<double> period{};
    PerReplica<std::int64_t> most{};  // micro-batches that memory allows
    double exchange = 0;              // and update, the longest of a stage
    double slowing = 0;               // of the last backwards, one after the other
    double bound = 0;                 // no plan made of this takes less
    PerReplica<int> groups{};         // of the first of these stages
    int first_layer = 0;
    int parent = -1;  // index of the label of the stages behind; -1: none
  };
  /// Labels that differ only in what they cost.
  struct State {
    DeviceSet used = 0;
    int first_layer = 0;
    PerReplica<int> groups{};
    PerReplica<int> last_groups{};
    std::vector<int> labels;  // indices
  };
  using States = std::unordered_map<std::uint64_t, State>;

  void Expand(const State& state, int stage);
  void PlaceReplicas(const State& state, int stage, LayerRange range, std::vector<int>& members,
                     DeviceSet used);
  void AddStage(const State& state, int stage, LayerRange range, const std::vector<int>& members,
                DeviceSet used);
  void Insert(const State& state, const Label& label, const std::vector<int>& members,
              DeviceSet used);
  bool Dominates(const Label& one, const Label& other) const;
  double Bound(const Label& label, int stage, DeviceSet used) const;
  /// Fewest seconds of the slowest replica, with the micro-batches of each; false if memory allows
  /// none.
  bool ShareOut(const Label& label, PerReplica<std::int64_t>& micro_batches, double& slowest) const;
  void Finish(const Label& label, const PerReplica<int>& last_groups);
  void Keep(const Label& label, const PerReplica<std::int64_t>& micro_batches, double step);
  std::int64_t MostMicroBatches(int group, LayerRange range, int stage) const;
  void Narrow(std::size_t most_labels);

  const PlanProblem& problem_;
  const Groups& groups_;
  const StageTimes& times_;
  Exchanges& exchanges_;
  PipelineFamily family_;
  std::optional<Best>& best_;
  std::int64_t micro_batches_ = 0;  // of all replicas
  int layers_ = 0;
  std::vector<Label> labels_;
  States next_;
};

}  // namespace adaptive_train::oracle
