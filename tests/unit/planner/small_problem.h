// Problems small enough to be worked out by hand.
#pragma once

#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Layers of 100 parameter bytes. On a device of speed 1 each takes one second per sample forward
/// and two backward. Nothing else takes time or memory unless a test sets it.
inline PlanProblem ProblemOf(const std::vector<double>& speeds, std::size_t layers,
                             std::int64_t batch) {
  PlanProblem problem;
  problem.global_batch = batch;
  problem.snapshot_share = 0;
  for (std::size_t l = 0; l < layers; ++l) {
    ProblemLayer layer;
    layer.parameter_bytes = layer.gradient_bytes = 100;
    layer.boundary_bytes = l + 1 < layers ? 10 : 0;
    problem.layers.push_back(layer);
  }
  for (std::size_t d = 0; d < speeds.size(); ++d) {
    DeviceKind kind{"speed " + std::to_string(speeds[d]), true, {}};
    for (std::size_t l = 0; l < layers; ++l)
      kind.layers.push_back({{0, 1 / speeds[d]}, {0, 2 / speeds[d]}, 0, {0, 1 / speeds[d]}});
    problem.kinds.push_back(kind);
    problem.devices.push_back({static_cast<int>(d), static_cast<int>(d), 1e12, 1});
    problem.node_names.push_back("n" + std::to_string(d + 1));
  }
  problem.links = LinkTable(speeds.size(), {0, 1e12});
  return problem;
}

/// One replica of a pipeline over devices 0, 1, ..., one stage each.
inline Layout Pipeline(const std::vector<int>& cut, std::int64_t samples, std::int64_t b) {
  Layout layout;
  layout.cut = cut;
  for (int s = 0; s < layout.Stages(); ++s) {
    layout.devices.push_back(s);
    layout.rings.push_back({0});
  }
  layout.shares = {{samples, b}};
  layout.compressed.assign(static_cast<std::size_t>(cut.back()), false);
  return layout;
}

/// Replicas of the whole model on devices 0, 1, ...
inline Layout Replicas(const std::vector<ReplicaShare>& shares, std::size_t layers) {
  Layout layout;
  layout.data = static_cast<int>(shares.size());
  layout.cut = {0, static_cast<int>(layers)};
  layout.rings.emplace_back();
  for (int d = 0; d < layout.data; ++d) {
    layout.devices.push_back(d);
    layout.rings[0].push_back(d);
  }
  layout.shares = shares;
  layout.compressed.assign(layers, false);
  return layout;
}

}  // namespace adaptive_train
