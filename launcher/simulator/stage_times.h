// How long a stage of a replica computes, layer by layer.
#pragma once

#include <vector>

#include "launcher/planner/problem.h"
#include "launcher/simulator/chance.h"

namespace adaptive_train {

/// Times of the slowest of the `tensor` devices that share a chunk of a replica, by
/// docs/planning.md. They include the sums over tensor ranks that forward and backward wait
/// for. A value, but the problem and the layout must outlive it.
class StageTimes {
 public:
  StageTimes(const PlanProblem& problem, const Layout& layout, int chunk, int replica);

  /// Seconds of each of the chunk's layers, first to last, for a micro-batch of `samples`. `action`
  /// numbers the random draws within the step.
  std::vector<double> Forward(double samples, const Chance& chance, int action) const;
  /// `kind`: a backward in one piece, or one of its halves. Sums over tensor ranks are in the first.
  std::vector<double> Backward(ActionKind kind, double samples, const Chance& chance,
                               int action) const;
  /// Seconds of the optimizer's update.
  double Update(const Chance& chance, int action) const;

  int FirstLayer() const { return first_; }
  int EndLayer() const { return end_; }

 private:
  const ProblemLayer& LayerAt(int layer) const {
    return problem_.layers[static_cast<std::size_t>(layer)];
  }
  template <class LayerTime>
  std::vector<double> OfSlowest(const Chance& chance, int action, LayerTime time) const;
  double SumSeconds(const RankSums& sums, double samples) const;

  const PlanProblem& problem_;
  const Layout& layout_;
  const int stage_, replica_;
  const int first_, end_;
};

}  // namespace adaptive_train
