// The number of micro-batches of a step: a grid over it, and the choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train {

/// A layout with micro-batches of another size at the same global batch. Devices, stages and tensor
/// ranks are the same; replicas' shares are as near as whole micro-batches allow.
struct GridPoint {
  std::int64_t micro_batch = 0;    // samples, of the replica with the largest
  std::int64_t micro_batches = 0;  // of a step, of the replica with most
  double step_seconds = 0;         // predicted
  double memory_share = 0;         // of the fullest device
  bool is_allowed = false;         // by memory and the problem's choices
  std::string why_not;             // one line; empty where it is allowed
  Layout layout;
};

/// Up to 12 points around the layout's own, which is among them, fewest micro-batches first.
/// The framework paper's equation (7) always ends at the fewest micro-batches; here the step at a
/// fixed global batch decides, (M + P - 1) times the slowest stage on an even pipeline, with each
/// stage's own time (docs/planning.md). The layout must have passed CheckLayout.
std::vector<GridPoint> MicroBatchGrid(const PlanProblem& problem, const Layout& layout);

/// The point whose layout to take: `layout`'s own, unless an allowed one is faster by more than 1 %.
std::size_t ChosenPoint(const std::vector<GridPoint>& grid, const Layout& layout);

/// The grid as a table: M, samples, predicted step, memory, chosen or why not. Without seconds
/// unless `timed`.
std::string DescribeGrid(const std::vector<GridPoint>& grid, std::size_t chosen, bool timed);

}  // namespace adaptive_train
