// Simulates optimizer steps of a layout event by event: the check of the planner's formulas.
#pragma once

#include <vector>

#include "launcher/planner/problem.h"
#include "launcher/simulator/chance.h"
#include "launcher/simulator/simulated_links.h"

namespace adaptive_train {

/// What a rank does during a span of time.
enum class Activity {
  kForward,
  kBackward,
  kBackwardInput,  // the halves of a backward
  kBackwardWeight,
  kExchange,  // of gradients, from its first bucket to the closing agreement: backward may still
              // run; with a sharded optimizer also of the updated parameters
  kUpdate,
  kIdle,  // waiting for another stage or for its activations
};

struct Span {
  int rank = 0;  // index as in Layout::devices
  Activity activity = Activity::kIdle;
  int micro_batch = -1;       // of forward and backward
  double begin = 0, end = 0;  // seconds since the first rank began the step
  int chunk = 0;              // of forward and backward, among the rank's stages
};

struct SimulationOptions {
  int steps = 1;  // in sequence; each rank goes on when its own step is over
  ChanceSettings chance{};
  NodeCards cards{};
  double bucket_bytes = 4 << 20;  // at most, of a layer's gradients on a device; positive
  /// Rings of more replicas use one flow per bucket (SimulatedLinks::SendAround), and at most 256
  /// buckets besides one of each layer. Single messages would be 2 (D-1) D per bucket. The same holds
  /// for a step that would have more than 200,000 such messages.
  int long_ring = 16;
  bool timeline = true;  // of the last step
};

struct Simulation {
  std::vector<double> step_seconds;  // from a step's last end to that of the next
  /// The last step's parts for the rank that ends last, from the end of its previous step; they add
  /// up to `step`. `activations` is its wait for messages on the way, `bubble` its other waits for
  /// stages.
  StepCost parts;
  std::vector<Span> timeline;  // of the last step, by rank, then by begin
  std::vector<LinkUse> links;  // of the last step
  double MedianStep() const;
};

/// Simulates the steps of a layout, which must be well formed (CheckLayout). A pipeline runs the
/// layout's schedule (P = 1: micro-batch after micro-batch). Activations and their gradients are
/// messages between the first tensor ranks' nodes.
///
/// In the last backward of each chunk a layer's buckets of gradients leave as soon as the layer is
/// done, or with PlanProblem::exchange_after all when the last layer is. Buckets go around their rings
/// at the same time. Ten numbers then end the step's exchange, and the optimizer follows. A
/// compressed layer computes `compression_s` more and counts its compressed bytes. With shard >= 1
/// buckets are reduce-scattered, and gathered again after the update. Tied embeddings go from the
/// last stage to the first and back, after the rings.
///
/// Devices of a kind with transfer_s_per_byte compute longer by that much for what is moved
/// meanwhile, and move no more than they could alone. Links: SimulatedLinks. A message over a link
/// without speed never arrives, and the step is infinite. Pure; a few hundred thousand messages per
/// second.
Simulation Simulate(const PlanProblem& problem, const Layout& layout,
                    const SimulationOptions& options = {});

}  // namespace adaptive_train
