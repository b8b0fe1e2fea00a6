// Problems and layouts for the simulator's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Devices of one kind, each on its own node; equal layers; equal links.
struct EvenProblem {
  int devices = 1;
  int layers = 1;
  std::int64_t global_batch = 1;
  double forward_s = 0;  // per sample and layer
  double backward_s = 0;
  double update_s = 0;
  double gradient_bytes = 0;
  double boundary_bytes = 0;
  LinkSpeed link{0, 1e9};

  PlanProblem Make() const {
    PlanProblem problem;
    problem.global_batch = global_batch;
    problem.layers.resize(static_cast<std::size_t>(layers));
    for (ProblemLayer& layer : problem.layers) {
      layer.gradient_bytes = layer.parameter_bytes = gradient_bytes;
      layer.boundary_bytes = boundary_bytes;
    }
    problem.layers.back().boundary_bytes = 0;
    const LayerSeconds seconds{{0, forward_s}, {0, backward_s}, update_s, {0, backward_s / 2}};
    problem.kinds.push_back(
        {"even", true, std::vector<LayerSeconds>(static_cast<std::size_t>(layers), seconds)});
    for (int i = 0; i < devices; ++i)
      problem.devices.push_back({.kind = 0, .node = i, .memory_bytes = 1e12, .standing = 1});
    problem.links = LinkTable(static_cast<std::size_t>(devices), link);
    problem.node_names.resize(static_cast<std::size_t>(devices), "node");
    return problem;
  }
};

/// Devices in order, stages as even as possible, equal shares of the batch.
inline Layout EvenLayout(const PlanProblem& problem, int stages, int data, std::int64_t micro_batch,
                         int tensor = 1) {
  Layout layout;
  layout.data = data;
  layout.tensor = tensor;
  const int layers = static_cast<int>(problem.layers.size());
  for (int s = 0; s <= stages; ++s) layout.cut.push_back(layers * s / stages);
  layout.devices.resize(static_cast<std::size_t>(stages * data * tensor));
  std::iota(layout.devices.begin(), layout.devices.end(), 0);
  layout.shares.assign(static_cast<std::size_t>(data), {problem.global_batch / data, micro_batch});
  std::vector<int> ring(static_cast<std::size_t>(data));
  std::iota(ring.begin(), ring.end(), 0);
  layout.rings.assign(static_cast<std::size_t>(stages), ring);
  layout.compressed.assign(problem.layers.size(), false);
  return layout;
}

}  // namespace adaptive_train
