// A lower bound of the step time that holds for every layout a problem allows.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/link_levels.h"
#include "launcher/planner/search_tables.h"
#include "launcher/planner/shapes.h"
#include "launcher/planner/shares.h"

namespace adaptive_train {

/// Seconds that no layout of a shape can go below. One object serves one number of tensor ranks,
/// with the IdealGroups of that number. Holds references to the tables and groups. Not thread-safe.
///
/// Each term relaxes docs/planning.md. A pipeline's layers may be split in any way between the
/// fastest groups, and all its links are as fast as the best ring of that many members. Memory is
/// only summed. The work that replicas of one stage can do is counted in whole samples.
class ShapeBound {
 public:
  ShapeBound(SearchTables& tables, const std::vector<Group>& groups);

  /// Infinite if the shapes cannot fit the memory.
  double Of(const ShapeRange& range);

 private:
  /// Rates at which classes do the work of one micro-batch, for prices of layers that are fair to
  /// all classes. This is the dual of the linear programme that splits layers freely.
  struct Work {
    std::vector<double> rates;   // micro-batches per second of a class; index = class
    std::vector<double> prices;  // running sums over layers, from 0 to 1
    /// [stage][class]: the same of the stages that are asked for, of which there is one number.
    std::vector<std::vector<double>> asked_rates;
    double shortest = 0;        // seconds of one micro-batch, each layer where it is fastest
    double backward_share = 0;  // the largest of a layer's time
  };
  struct Exchange {
    double fixed = 0;        // seconds, whatever is sent
    double all = 0;          // of all layers, besides
    double shortest = 0;     // of the layer that is sent soonest, fixed included
    double compression = 0;  // of `all`, what is compressed whatever it saves
  };
  /// Groups that could each hold a replica of the whole model.
  struct WholeKind {
    WholeReplica replica;
    int count = 0;
  };

  const Work& WorkOf(const Shape& shape);
  std::vector<std::vector<double>> LayerTimes(const Shape& shape) const;
  Exchange ExchangeOf(int members, const RingSpeed& speed);
  /// Seconds in which pipeline replicas can do the batch. `hidden` is the share of one micro-batch
  /// on a stage of each replica that is not counted.
  double PipelineSeconds(const ShapeRange& range, const Work& work, double hidden) const;
  /// The same, taking into account that memory keeps groups out of large stages.
  double RoomSeconds(const Shape& shape, const Work& work, double hidden) const;
  double RoomSeconds(const Shape& shape, const Work& work, double hidden,
                     std::int64_t in_flight) const;
  /// Seconds in which the fastest groups do the busiest of the stages that are asked for; 0 if none
  /// are.
  double AskedSeconds(const Shape& shape, const Work& work) const;
  /// The transfers of one micro-batch through all stages and back, if every stage is inside an
  /// island of that level. A pipeline that does not fit into an island crosses to others.
  double TransferSeconds(const Shape& shape, int data, std::size_t level) const;
  double PipelineBound(const ShapeRange& range);
  double WholeBound(const ShapeRange& range);
  std::vector<WholeKind> WholeKinds(const Shape& shape, const std::vector<int>& members) const;
  double WholeSeconds(const ShapeRange& range, const std::vector<int>& members,
                      const Exchange& exchange) const;
  /// The whole model's lines, the least over the classes that may stand behind `device_class`.
  RangeSeconds WholeLines(const Shape& shape, int device_class) const;
  double LeastUpdate(const ShapeRange& range) const;
  bool FitsTogether(const ShapeRange& range) const;

  SearchTables& tables_;
  const std::vector<Group>& groups_;
  LinkSpeed inside_;              // the best inside nodes
  std::vector<int> class_count_;  // groups of each class
  /// [class]: the possible classes of the slowest device of a group of this class.
  std::vector<std::vector<int>> stands_for_;
  std::vector<double> limits_;                 // running sums of the groups' limits, largest first
  std::vector<std::pair<int, double>> kinds_;  // distinct (class, limit)
  std::vector<int> kind_count_;                // groups of each
  LinkLevels levels_;
  std::map<std::tuple<Recompute, std::int64_t>, Work> work_;
  std::map<std::pair<int, double>, Exchange> exchange_;  // by members and bandwidth
  double least_boundary_ = 0;                            // bytes
};

/// The least of all shapes' bounds: no layout takes fewer seconds. Infinite if none fits.
double LowerBound(const PlanProblem& problem);

}  // namespace adaptive_train
