// A layout during the search: groups in places, cuts, and a step time that is kept up to date.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"
#include "launcher/planner/shares.h"

namespace adaptive_train {

/// The freely chosen part of an arrangement.
struct Placement {
  std::vector<int> cut;     // as in Layout
  std::vector<int> groups;  // index = stage x data + replica
};

/// Scores placements of one shape by docs/planning.md. A change costs only what it touches: its
/// replicas and stages. Holds references to tables and groups. Not thread-safe.
class Arrangement {
 public:
  Arrangement(SearchTables& tables, const std::vector<Group>& groups, const Shape& shape);

  /// Scores from scratch.
  double Set(Placement placement);
  /// Seconds of a step. kImpossible or more if memory or links do not allow the placement, growing
  /// with the amount that is missing.
  double Score() const { return score_; }
  static constexpr double kImpossible = 1e30;

  const Placement& Current() const { return placement_; }
  const Shape& GetShape() const { return shape_; }
  const std::vector<Group>& Groups() const { return groups_; }
  /// Whether the request leaves the cuts to the search.
  bool HasFreeCuts() const { return tables_.Problem().choices.cut.empty(); }

  /// Each changes the placement and returns the new score; Undo reverts the last change.
  double Swap(int place, int other);
  double Replace(int place, int group);
  double MoveCut(int boundary, int layer);
  double SetCuts(const std::vector<int>& cut);
  double SwapStages(int stage, int other);
  void Undo();
  /// Redistributes samples so that more of the exchange is hidden, if that improves the score. The
  /// result lasts until the next change. Costs as much as hundreds of changes.
  double Polish();

  /// The replica with the longest time, and the stage with the longest exchange and update.
  int SlowestReplica() const { return slowest_replica_; }
  int SlowestStage() const { return slowest_stage_; }

  /// The layout including rings, shares and compression.
  Layout ToLayout() const;

 private:
  struct ClassSeconds {
    double forward = 0, backward = 0, update = 0;  // forward, backward: of one micro-batch
    RangeSeconds lines;
  };
  struct TensorLines {
    Line forward, backward;
  };
  struct Stage {
    RangeBytes bytes;
    double boundary_bytes = 0;  // of a micro-batch
    RangeSums sums;             // over tensor ranks
    RingSpeed ring;
    double hidden = 0, update = 0, exchange = 0, compression = 0, first = 0, slowing = 0;
    double amiss = 0;
  };
  struct Replica {
    PipelineReplica pipeline;
    WholeReplica whole;
    double tied = 0, amiss = 0;
  };
  struct Saved {
    Placement placement;
    std::vector<Replica> replicas;
    std::vector<Stage> stages;
    std::vector<ClassSeconds> seconds;
    std::vector<int> changed_replicas, changed_stages;
    bool all = false;
    double score = 0;
    int slowest_replica = 0, slowest_stage = 0;
  };

  bool InMicroBatches() const {
    return tables_.Problem().InMicroBatches(shape_.stages, shape_.micro_batch);
  }
  const Group& At(int stage, int replica) const {
    return groups_[static_cast<std::size_t>(
        placement_.groups[static_cast<std::size_t>(stage * shape_.data + replica)])];
  }
  const ClassSeconds& SecondsOf(int stage, const Group& group) const {
    return seconds_[static_cast<std::size_t>(stage) * classes_ +
                    static_cast<std::size_t>(group.device_class)];
  }
  void Save(bool all, std::vector<int> stages, std::vector<int> replicas);
  double Rescore();
  void SetLayers(int stage);
  void SetMembers(int stage);
  void SetExchange(int stage);
  void SetReplica(int replica);
  void SetPipeline(int replica, Replica& out) const;
  void SetWhole(int replica, Replica& out) const;
  double ShareSamples();
  double ReplicaSeconds(int replica) const;
  /// Seconds of a stage's sums over the group's tensor ranks.
  TensorLines TensorLinesOf(int stage, const Group& group, double& amiss) const;

  SearchTables& tables_;
  const std::vector<Group>& groups_;
  Shape shape_;
  const LayerSums& sums_;
  double common_bytes_ = 0;
  bool compressible_ = false;
  std::vector<double> gradient_sums_;
  Placement placement_;
  std::size_t classes_;
  std::vector<ClassSeconds> seconds_;  // index = stage x classes + class
  std::vector<Stage> stages_;
  std::vector<Replica> replicas_;
  double score_ = 0;
  int slowest_replica_ = 0, slowest_stage_ = 0;
  Saved saved_;
  std::vector<std::int64_t> counts_;  // micro-batches, or samples of one stage
  std::vector<PipelineReplica> pipelines_;
  std::vector<WholeReplica> wholes_;
  std::vector<int> nodes_;
};

}  // namespace adaptive_train
