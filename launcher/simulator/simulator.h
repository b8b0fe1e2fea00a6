// Plays optimizer steps of a layout event by event: the judge of the planner's formulas.
#pragma once

#include <vector>

#include "launcher/planner/problem.h"
#include "launcher/simulator/chance.h"
#include "launcher/simulator/simulated_links.h"

namespace adaptive_train {

/// What a rank is doing.
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
  int steps = 1;  // one after another; each rank goes on when its own step is over
  ChanceSettings chance{};
  NodeCards cards{};
  double bucket_bytes = 4 << 20;  // of a device's gradients, exchanged at once; positive
  /// Rings of more replicas are played as one flow per bucket (SimulatedLinks::SendAround) instead
  /// of as single messages, of which a bucket has 2 (D-1) D, and with 256 buckets at most. So is a
  /// step that would have more than 200,000 such messages.
  int long_ring = 16;
  bool timeline = true;  // of the last step
};

struct Simulation {
  std::vector<double> step_seconds;  // from a step's last end to the next one's
  /// Of the last step, of the rank that ends last, from the end of its step before; the parts add
  /// up to `step`. `activations` is the time it waits for messages under way, `bubble` its other
  /// waiting for stages.
  StepCost parts;
  std::vector<Span> timeline;  // of the last step, by rank, then by begin
  std::vector<LinkUse> links;  // of the last step
  double MedianStep() const;
};

/// The layout must be well formed (CheckLayout). Forward and backward run one-forward-one-backward
/// (P = 1: micro-batch after micro-batch); activations and their gradients are messages between the
/// first tensor ranks' nodes. In the last backward a gradient bucket, cut from the end of the
/// stage's layers, leaves as soon as its layers are done; buckets go around their rings at the same
/// time, then ten numbers that end the step's exchange, then the optimizer. A compressed layer
/// computes `compression_s` more and counts its compressed bytes. Devices of a kind with
/// transfer_s_per_byte compute that much longer for what is moved meanwhile, and move no more than
/// they could alone. With shard >= 1 buckets are
/// reduce-scattered, and gathered again after the update. Tied embeddings go from the last stage to
/// the first and back, after the rings. Links: SimulatedLinks. A message over a link without speed
/// never arrives; the step is then infinite. Pure; time grows with messages: a few hundred thousand
/// of them a second.
Simulation Simulate(const PlanProblem& problem, const Layout& layout,
                    const SimulationOptions& options = {});

}  // namespace adaptive_train
