// Judges a layout by docs/planning.md: is it well formed, and what does its ring cost.
#pragma once

#include <span>
#include <vector>

#include "core/result.h"
#include "core/schedule/list_schedule.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// The slowest of some links that are used in turn again and again.
struct RingSpeed {
  double latency_s = 0;         // the highest
  double bytes_per_second = 0;  // the lowest; 0 = two neighbours cannot communicate
  /// Computing that each byte sent or received takes from the member that this delays most.
  double transfer_s_per_byte = 0;
};

/// R(V) of docs/planning.md: seconds that a ring of `members` needs to sum `bytes`. Infinite if
/// neighbours cannot communicate, 0 for one member.
double RingSeconds(int members, const RingSpeed& speed, double bytes);

/// M(V) of docs/planning.md: computing that moving `bytes` around a ring takes from its members.
double SlowingSeconds(int members, const RingSpeed& speed, double bytes);

/// Computing that moving `bytes` of activations, or of their gradients, takes from one of `ranks`
/// tensor ranks on a device of this kind.
double MovingSeconds(const PlanProblem& problem, int kind, int ranks, double bytes);

/// The speed of the ring that visits the nodes in this order and returns. Needs at least two nodes;
/// a node that appears twice in a row uses its inner link.
RingSpeed SpeedOfRing(const LinkTable& links, std::span<const int> nodes);

/// The speed of the stage's ring in this layout, whose devices and ring of replicas are set. The
/// bytes of all tensor ranks together go around it. Needs at least two replicas.
RingSpeed SpeedOfStage(const PlanProblem& problem, const Layout& layout, int stage);

/// Whether a ring's members compress a layer that can be compressed. With compress_all they do;
/// otherwise only if that makes the layer's sum faster, including `compression_s`.
bool Compresses(const PlanProblem& problem, int layer_index, int members, const RingSpeed& speed);

/// Seconds in which one micro-batch's activations go to the next node and their gradients come
/// back; infinite if they cannot.
double BoundarySeconds(const LinkTable& links, int from, int to, double bytes);

/// Seconds that the ranks of one stage and replica compute in a step, beside nothing else.
struct PlaceSeconds {
  Line micro_batch;   // forward and backward, over its samples
  double update = 0;  // of the optimizer
};
/// Index = stage x replicas + replica. Tensor ranks are as slow as the slowest of them.
std::vector<PlaceSeconds> PlaceSecondsOf(const PlanProblem& problem, const Layout& layout);

/// What a replica's schedule is played with: seconds of its chunks and of messages between them.
PlayCosts PlayCostsOf(const PlanProblem& problem, const Layout& layout, int replica);

/// The replica's stages for MakeListSchedule, of a layout with one chunk per rank. Ranks may hold
/// what their memory leaves besides all else.
UnevenPipeline PipelineOf(const PlanProblem& problem, const Layout& layout, int replica);

/// Checks the layout. Each device is used at most once, tensor groups are inside a node, and no
/// stage is empty. Shares add up to the batch, rings cover all replicas, memory is within
/// kMemoryShare, and the numbers are among the problem's choices. Fails in one line that names the
/// first error.
Result<void> CheckLayout(const PlanProblem& problem, const Layout& layout);

}  // namespace adaptive_train
