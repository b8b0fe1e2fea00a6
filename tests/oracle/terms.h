// The single terms of docs/planning.md, written apart from the planner's own evaluation.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train::oracle {

/// Layers [first, end).
struct LayerRange {
  int first = 0;
  int end = 0;
};

/// Seconds of one layer with `samples` on one device that is one of `tensor`.
double ForwardOf(const PlanProblem& problem, int device, int layer, int tensor, double samples);
double BackwardOf(const PlanProblem& problem, int device, int layer, int tensor,
                  Recompute recompute, double samples);
/// Seconds of the optimizer for one layer; `data` and `shard` as in Layout.
double UpdateOf(const PlanProblem& problem, int device, int layer, int tensor, int data, int shard);

/// Seconds of `bytes` from one node to another and as many back.
double ThereAndBack(const PlanProblem& problem, int node, int other, double bytes);

/// What a ring's slowest links are.
struct RingLinks {
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_s = 0;
  double moving_s_per_byte =
      0;  // of a member's computing, both for what it sends and what it receives
};
/// Of the ring that visits `nodes` in this order.
RingLinks LinksOfRing(const PlanProblem& problem, const std::vector<int>& nodes);
/// R(V).
double RingSeconds(const RingLinks& links, int data, double bytes);
/// Whether the rule compresses a layer's gradient.
bool Compresses(const PlanProblem& problem, int layer, const RingLinks& links, int data);

/// What E_s is made of; 0 with one replica.
struct ExchangeTerms {
  double whole = 0;        // R(V_s)
  double first_layer = 0;  // R(V_first layer), which hides behind nothing
  double slowing = 0;      // what moving the others takes of the last backward
  double compression = 0;
  double Exposed(double backward) const;
};
ExchangeTerms ExchangeOf(const PlanProblem& problem, LayerRange range,
                         const std::vector<bool>& compressed, const RingLinks& links, int data);

/// The part of a layout that a device's memory depends on.
struct MemoryChoice {
  int data = 1;
  int tensor = 1;
  int shard = 0;
  int stages = 1;
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batch = 1;
};
/// Bytes of a device: fixed + in_flight x micro-batches in flight.
struct MemoryTerms {
  double fixed = 0;
  double in_flight = 0;
};
MemoryTerms MemoryOfStage(const PlanProblem& problem, LayerRange range, const MemoryChoice& choice);

}  // namespace adaptive_train::oracle
