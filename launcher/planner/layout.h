// A layout judged by the rules of docs/planning.md: is it well formed, what does its ring cost.
#pragma once

#include <span>

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// The slowest of some links that are used one after another, again and again.
struct RingSpeed {
  double latency_s = 0;         // the highest
  double bytes_per_second = 0;  // the lowest; 0 = two neighbours cannot reach each other
};

/// R(V) of docs/planning.md: seconds that a ring of `members` needs to sum `bytes`; infinite where
/// neighbours cannot reach each other, 0 for one member.
double RingSeconds(int members, const RingSpeed& speed, double bytes);

/// Speed of the ring that visits the nodes in this order and returns. Needs two nodes or more; the
/// same node twice in a row counts with its own link.
RingSpeed SpeedOfRing(const LinkTable& links, std::span<const int> nodes);

/// Whether a ring's members compress a layer that can be: all do with compress_all, otherwise where
/// the layer alone is summed sooner, `compression_s` included.
bool Compresses(const PlanProblem& problem, int layer_index, int members, const RingSpeed& speed);

/// Seconds in which one micro-batch's activations go from one node to the next and their gradients
/// come back; infinite where they cannot.
double BoundarySeconds(const LinkTable& links, int from, int to, double bytes);

/// Well formed: each device at most once, tensor groups inside a node, no empty stage, shares that
/// add up to the batch, rings over all replicas, memory within kMemoryShare, numbers that the
/// problem's choices allow. Fails in one line that names the first thing wrong.
Result<void> CheckLayout(const PlanProblem& problem, const Layout& layout);

}  // namespace adaptive_train
